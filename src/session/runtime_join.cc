// How a worker comes into its job: by the invitation in its environment, together with those that were launched with
// it, or into a view that is known.
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <utility>

#include "base/log.h"
#include "base/system.h"
#include "net/socket.h"
#include "net/tcp.h"
#include "session/launch.h"
#include "session/rendezvous.h"
#include "session/runtime.h"
#include "session/socket_transport.h"

#ifndef PLIANT_VERSION
#define PLIANT_VERSION "0"
#endif

namespace pliant::session {
namespace {

using membership::View;

/// How those meet that no `pliant run` has started.
Result<MeetOptions> meet_options(const JoinOptions& wanted) {
  MeetOptions options;
  auto home = env("HOME");
  if (!home && !env("PLIANT_DIR"))
    return Error{Code::invalid, "neither PLIANT_DIR nor HOME is set, so the job's processes have no place to meet"};
  options.dir = env("PLIANT_DIR").value_or(home.value_or("") + "/.pliant");
  options.interface_name = env("PLIANT_INTERFACE").value_or("");
  if (auto patience = env("PLIANT_PATIENCE")) {
    constexpr double kMost = 86'400;
    char* end = nullptr;
    double value = std::strtod(patience->c_str(), &end);
    if (*end != '\0' || !(value > 0 && value <= kMost))
      return Error{Code::invalid, fmt::format("PLIANT_PATIENCE: '{}' is not a number of seconds", *patience)};
    options.patience = std::chrono::ceil<std::chrono::milliseconds>(std::chrono::duration<double>(value));
  }
  options.seed = wanted.seed.value_or(options.seed);
  options.cpu_level = static_cast<std::uint8_t>(cpu_level());
  options.build = PLIANT_VERSION;
  return options;
}

}  // namespace

Result<std::unique_ptr<Runtime>> Runtime::form(const std::string& job, const View& view, int rank, Fd listener,
                                               std::optional<collective::HostsOptions> hosts,
                                               collective::WatchMaker watch) {
  auto self = view.members[static_cast<std::size_t>(rank)];
  std::unique_ptr<Roster> roster;
  if (view.size() > 1) {
    RosterOptions options;
    options.job = job;
    options.self = self;
    options.view = view;
    // A function must be copyable; it is called once.
    auto sockets = std::make_shared<SocketOptions>(
        SocketOptions{job, self, std::move(listener), "", std::move(hosts), "", std::move(watch)});
    options.open = [sockets] { return open_sockets(std::move(*sockets)); };
    roster = std::make_unique<Roster>(std::move(options));
  }
  std::unique_ptr<Runtime> runtime(new Runtime(self.id, view.seed, std::move(roster)));
  PLIANT_TRY(runtime->views_.found(view));
  return runtime;
}

Result<std::unique_ptr<Runtime>> Runtime::join(const JoinOptions& options) {
  auto invited = Platform::current().invitation();
  if (!invited.ok()) return invited.error();
  if (invited.value()) return join_invited(std::move(*invited.value()));
  auto launch = launch_from(&env);
  if (!launch.ok()) return launch.error();
  if (launch.value()) return join_launched(*launch.value(), options);
  return form("", {1, 1, options.seed.value_or(42), 1, {{0, getpid(), ""}}}, 0, Fd());
}

Result<std::unique_ptr<Runtime>> Runtime::join_launched(const Launch& launch, const JoinOptions& options) {
  log::set_prefix(std::to_string(launch.rank));
  auto wanted = meet_options(options);
  if (!wanted.ok()) return wanted.error();
  auto met = meet(launch, wanted.value());
  if (!met.ok()) return met.error();
  auto& [view, listener, hosts] = met.value();
  if (auto silence = silence_wanted(); hosts && silence) hosts->silence = *silence;
  auto trusted = network_is_trusted();
  if (!trusted.ok()) return trusted.error();
  if (hosts) hosts->trusted = trusted.value();
  if (hosts && trusted.value() && launch.rank == 0)
    log::info("PLIANT_NETWORK=trusted: gradients and state cross the network unencrypted");
  if (launch.rank == 0) log::info("{} processes of {} are job {}", launch.size, launch.launcher, launch.job);
  auto runtime = form(launch.job, view, launch.rank, std::move(listener), std::move(hosts));
  if (runtime.ok()) runtime.value()->own_process_ = true;
  return runtime;
}

Result<std::unique_ptr<Runtime>> Runtime::join_invited(RosterOptions options) {
  auto self = options.self.id;
  auto roster = std::make_unique<Roster>(std::move(options));
  auto first = roster->await_first();
  if (!first.ok()) return first.error();
  auto view = std::move(first).value();
  std::unique_ptr<Runtime> runtime(new Runtime(self, view.seed, std::move(roster)));
  runtime->own_process_ = true;
  log::set_prefix(std::to_string(self));
  if (view.rank_of(self) < 0)
    runtime->views_.begin_outside();
  else
    runtime->views_.begin_inside(view);
  return runtime;
}

}  // namespace pliant::session
