#include "net/dialer.h"

#include <string_view>
#include <utility>

namespace pliant::net {
namespace {

constexpr std::string_view kRemote = "tcp:";

}  // namespace

bool is_remote(const std::string& address) { return address.starts_with(kRemote); }

Dialer::Dialer(Loop& loop, std::string address, std::optional<Credentials> credentials,
               std::function<void(Line)> on_line, std::function<void(const Error&)> on_failure)
    : loop_(loop),
      address_(std::move(address)),
      credentials_(std::move(credentials)),
      on_line_(std::move(on_line)),
      on_failure_(std::move(on_failure)) {}

void Dialer::call() {
  if (call_) return;
  if (!is_remote(address_)) {
    auto socket = connect_to(address_);
    return socket.ok() ? on_line_(Line::local(std::move(socket).value())) : on_failure_(socket.error());
  }
  auto to = parse_endpoint(address_.substr(kRemote.size()));
  if (!to.ok()) return on_failure_(to.error());
  if (!credentials_) return on_failure_({Code::invalid, "no secret to be let in with at " + address_});
  call_ = std::make_unique<Call>(loop_, to.value(), credentials_->address, credentials_->secret, credentials_->who,
                                 [this](Result<Guest> guest) { ended(std::move(guest)); });
}

void Dialer::ended(Result<Guest> guest) {
  call_.reset();  // from within its own callback, which it allows
  if (!guest.ok()) return on_failure_(guest.error());
  on_line_(Line::remote(std::move(guest.value().socket), std::move(guest.value().rest)));
}

}  // namespace pliant::net
