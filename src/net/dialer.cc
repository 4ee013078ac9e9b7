#include "net/dialer.h"

#include <fstream>
#include <string_view>
#include <utility>

namespace pliant::net {
namespace {

constexpr std::string_view kRemote = "tcp:";
constexpr std::string_view kFile = "file:";

}  // namespace

bool is_remote(const std::string& address) { return address.starts_with(kRemote); }

std::string address_at(const std::string& address) {
  if (!address.starts_with(kFile)) return address;
  std::ifstream file(address.substr(kFile.size()));
  std::string line;
  std::getline(file, line);
  return line;
}

Dialer::Dialer(Loop& loop, std::string address, std::optional<Credentials> credentials,
               std::function<void(Line)> on_line, std::function<void(const Error&)> on_failure)
    : loop_(loop),
      address_(std::move(address)),
      credentials_(std::move(credentials)),
      on_line_(std::move(on_line)),
      on_failure_(std::move(on_failure)) {}

void Dialer::call() {
  if (call_) return;
  auto address = this->address();
  if (address.empty()) return on_failure_({Code::not_found, "nobody says where it is"});
  if (!is_remote(address)) {
    auto socket = connect_to(address);
    return socket.ok() ? on_line_(Line::local(std::move(socket).value())) : on_failure_(socket.error());
  }
  auto to = parse_endpoint(address.substr(kRemote.size()));
  if (!to.ok()) return on_failure_(to.error());
  if (!credentials_) return on_failure_({Code::invalid, "no secret to be let in with at " + address});
  call_ = std::make_unique<Call>(loop_, to.value(), credentials_->address, credentials_->secret, credentials_->who,
                                 [this](Result<Guest> guest) { ended(std::move(guest)); });
}

void Dialer::ended(Result<Guest> guest) {
  call_.reset();  // from within its own callback, which it allows
  if (!guest.ok()) return on_failure_(guest.error());
  auto& there = guest.value();
  on_line_(Line::remote(std::move(there.socket), std::move(there.rest), std::move(there.keys)));
}

}  // namespace pliant::net
