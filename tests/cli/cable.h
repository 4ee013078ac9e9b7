// Two hosts on this machine: network namespaces with a cable between them.
#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

namespace pliant::cli_test {

class Cable {
 public:
  Cable() {
    auto script = fmt::format(
        "ip netns add {0} && ip netns add {1} && ip -n {0} link add eth0 type veth peer name eth0 netns {1} && "
        "for n in {0} {1}; do ip -n $n link set lo up && ip -n $n link set eth0 up || exit 1; done && "
        "ip -n {0} addr add 10.78.0.1/24 dev eth0 && ip -n {1} addr add 10.78.0.2/24 dev eth0",
        a, b);
    works_ = std::system(("(" + script + ") 2>/dev/null").c_str()) == 0;
  }
  ~Cable() {
    for (const auto& name : {a, b})
      [[maybe_unused]] auto status = std::system(fmt::format("ip netns del {} 2>/dev/null", name).c_str());
  }
  Cable(const Cable&) = delete;
  Cable& operator=(const Cable&) = delete;

  /// Not everywhere may one make them.
  bool works() const { return works_; }

  const std::string a = fmt::format("pliant{}a", getpid());  ///< at 10.78.0.1
  const std::string b = fmt::format("pliant{}b", getpid());  ///< at 10.78.0.2

 private:
  bool works_ = false;
};

}  // namespace pliant::cli_test
