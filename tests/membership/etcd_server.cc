#include "membership/etcd_server.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <vector>

#include "net/http.h"

namespace pliant::etcd_test {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr const char* kProgram = "/usr/bin/etcd";
constexpr auto kHangGuard = 60s;

/// Not one of those that the kernel gives to whoever connects: nobody takes it while the server is down.
net::Endpoint free_port(const std::string& address) {
  auto first = static_cast<std::uint16_t>(20'000 + getpid() % 10'000);
  return net::tcp_listen(address, {first, 32'000}).or_throw().endpoint;
}

std::string name_of(const std::string& folder) { return fs::path(folder).filename(); }

std::vector<std::string> tls_flags(const EtcdServer::Tls& tls) {
  std::vector<std::string> flags = {"--cert-file=" + tls.cert, "--key-file=" + tls.key};
  if (tls.asks_clients) flags.insert(flags.end(), {"--client-cert-auth", "--trusted-ca-file=" + tls.ca});
  return flags;
}

std::vector<std::string> command(const std::string& folder, const std::string& client) {
  const std::string kUnused = "http://127.0.0.1:1";  // nobody calls an only member
  return {kProgram,
          "--name=" + name_of(folder),
          "--data-dir=" + folder + "/data",
          "--listen-client-urls=" + client,
          "--advertise-client-urls=" + client,
          "--listen-peer-urls=http://127.0.0.1:0",
          "--initial-advertise-peer-urls=" + kUnused,
          "--initial-cluster=" + name_of(folder) + "=" + kUnused,
          "--bcrypt-cost=4",  // passwords shall not cost a busy machine more than they must
          "--logger=zap",
          "--log-outputs=stderr"};
}

/// It does not outlive the test, however that ends.
pid_t launch(const std::vector<std::string>& words, const std::string& log) {
  std::vector<char*> argv;
  for (const auto& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  int output = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  auto parent = getpid();
  auto pid = fork();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(125);
    dup2(output, STDOUT_FILENO);
    dup2(output, STDERR_FILENO);
    syscall(SYS_close_range, 3, ~0U, 0);
    execv(argv[0], argv.data());
    _exit(125);
  }
  close(output);
  return pid;
}

/// Empty if there is none.
std::string answer_of(const net::HttpServer& server, const net::HttpRequest& request) {
  net::Loop loop;
  std::string body;
  net::HttpCall call(
      loop, server, request,
      [&](Result<net::HttpAnswer> answer) {
        if (answer.ok() && answer.value().status == 200) body = std::move(answer).value().body;
        loop.stop();
      },
      10s);
  loop.run();
  return body;
}

std::string text_of(const std::string& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

}  // namespace

bool EtcdServer::is_installed() { return access(kProgram, X_OK) == 0; }

EtcdServer::EtcdServer(const std::string& address, std::optional<Tls> tls) : tls_(std::move(tls)) {
  auto pattern = (fs::temp_directory_path() / "pliant-etcd-XXXXXX").string();
  if (!mkdtemp(pattern.data())) throw std::runtime_error("no folder for etcd");
  folder_ = pattern;
  for (int attempt = 0; attempt < 5; ++attempt) {  // another process may take the port just now, but not always
    endpoint_ = free_port(address);
    if (start()) return;
  }
  throw std::runtime_error("etcd does not start: " + text_of(folder_ + "/log"));
}

EtcdServer::~EtcdServer() {
  kill();
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

/// False if it has ended.
bool EtcdServer::start() {
  auto words = command(folder_, (tls_ ? "https://" : "http://") + endpoint_.text());
  if (tls_)
    for (const auto& flag : tls_flags(*tls_)) words.push_back(flag);
  pid_ = launch(words, folder_ + "/log");
  auto end = std::chrono::steady_clock::now() + kHangGuard;
  while (!is_healthy()) {
    if (has_ended()) return false;
    if (std::chrono::steady_clock::now() > end) throw std::runtime_error("etcd hangs: " + text_of(folder_ + "/log"));
    std::this_thread::sleep_for(20ms);
  }
  return !has_ended();
}

/// One that is well, and not another test's that was faster to take the port.
bool EtcdServer::is_healthy() const {
  return answer({.path = "/health"}) == R"({"health":"true"})" &&
         answer({"POST", "/v3/cluster/member/list", "{}"}).find(name_of(folder_)) != std::string::npos;
}

/// Its own certificate is good enough for itself.
std::string EtcdServer::answer(const net::HttpRequest& request) const {
  if (!tls_) return answer_of(endpoint_, request);
  auto context = net::TlsContext::open({tls_->ca, tls_->cert, tls_->key}).or_throw();
  return answer_of({endpoint_, endpoint_.address, context}, request);
}

void EtcdServer::ask_for_passwords(const std::string& password) {
  auto do_it = [this](const std::string& path, const std::string& body) {
    if (answer({"POST", "/v3/auth/" + path, body}).empty()) throw std::runtime_error("etcd does not do " + path);
  };
  for (std::string user : {"root", "job"}) {
    do_it("user/add", R"({"name":")" + user + R"(","password":")" + password + R"("})");
    do_it("role/add", R"({"name":")" + user + R"("})");
    do_it("user/grant", R"({"user":")" + user + R"(","role":")" + user + R"("})");
  }
  // Keys from "/jobs/" to "/jobs0", for reading and writing.
  do_it("role/grant", R"({"name":"job","perm":{"permType":"READWRITE","key":"L2pvYnMv","range_end":"L2pvYnMw"}})");
  do_it("enable", "{}");
}

bool EtcdServer::has_ended() {
  if (pid_ < 0) return true;
  if (waitpid(pid_, nullptr, WNOHANG) == 0) return false;
  pid_ = -1;
  return true;
}

void EtcdServer::kill() {
  if (has_ended()) return;
  ::kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

void EtcdServer::restart() {
  if (!start()) throw std::runtime_error("etcd does not start again: " + text_of(folder_ + "/log"));
}

void EtcdServer::freeze() {
  ::kill(pid_, SIGSTOP);
  waitpid(pid_, nullptr, WUNTRACED);  // it takes a moment to reach all of its threads
}

void EtcdServer::go_on() { ::kill(pid_, SIGCONT); }

}  // namespace pliant::etcd_test
