// A CA and certificates of it, made with the openssl command in a folder of their own.
#pragma once

#include <fmt/format.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>

namespace pliant::net {

class Certificates {
 public:
  static bool can_be_made() { return access("/usr/bin/openssl", X_OK) == 0; }

  Certificates() {
    auto pattern = (std::filesystem::temp_directory_path() / "pliant-certificates-XXXXXX").string();
    if (!mkdtemp(pattern.data())) throw std::runtime_error("no folder for certificates");
    folder_ = pattern;
    openssl(
        fmt::format("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=test-ca "
                    "-keyout {0}/ca.key -out {0}/ca.pem",
                    folder_));
  }
  ~Certificates() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  Certificates(const Certificates&) = delete;
  Certificates& operator=(const Certificates&) = delete;

  std::string ca() const { return folder_ + "/ca.pem"; }
  std::string cert(const std::string& name) const { return folder_ + "/" + name + ".pem"; }
  std::string key(const std::string& name) const { return folder_ + "/" + name + ".key"; }
  /// Makes cert(name) and key(name), for these: "IP:127.0.0.1,DNS:localhost". Without a common name: an etcd cluster
  /// that has users does not let clients in that have one.
  void issue(const std::string& name, const std::string& alternatives) const {
    openssl(
        fmt::format("req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /O={1} -keyout {0}/{1}.key "
                    "-out {0}/{1}.csr -addext subjectAltName={2}",
                    folder_, name, alternatives));
    openssl(
        fmt::format("x509 -req -in {0}/{1}.csr -CA {0}/ca.pem -CAkey {0}/ca.key -days 2 -copy_extensions copy "
                    "-out {0}/{1}.pem",
                    folder_, name));
    chmod(key(name).c_str(), 0600);
  }

 private:
  void openssl(const std::string& words) const {
    auto command = "/usr/bin/openssl " + words + " >" + folder_ + "/log 2>&1";
    if (std::system(command.c_str()) != 0) throw std::runtime_error("fails: " + command);
  }
  std::string folder_;
};

}  // namespace pliant::net
