#include "apps/pliant/resize.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "apps/pliant/jobs.h"
#include "base/clock.h"
#include "net/socket.h"

namespace pliant::cli {
namespace {

using namespace std::chrono_literals;

constexpr auto kTimeToAnswer = 10s;
constexpr Nanos kTimeToComeBack = 5s;  // a coordinator that died is replaced within a fraction of a second

Result<wire::Answer> ask(const std::string& address, std::uint32_t workers) {
  auto socket = net::connect_to(address);
  if (!socket.ok()) return socket.error();
  PLIANT_TRY(net::send(socket.value(), wire::Resize{workers}));
  auto received = net::receive_within(socket.value(), kTimeToAnswer);
  if (!received.ok()) return received.error();
  if (const auto* answer = std::get_if<wire::Answer>(&received.value().message)) return *answer;
  if (const auto* refusal = std::get_if<wire::Refusal>(&received.value().message))
    return wire::Answer{0, refusal->reason};
  return Error{Code::protocol, "the coordinator did not answer the question"};
}

int resize(const std::string& name, std::uint32_t workers) {
  auto found = choose_job(job_base().or_throw(), name);
  if (!found.ok()) {
    fmt::print(stderr, "pliant resize: {}\n", found.error().message);
    return 1;
  }
  const auto& job = found.value();
  SteadyClock clock;
  auto end = clock.now() + kTimeToComeBack;
  auto answer = ask(job.record.plan.coordinator, workers);
  while (!answer.ok() && job.agent_alive && clock.now() < end) {
    std::this_thread::sleep_for(50ms);
    answer = ask(job.record.plan.coordinator, workers);
  }
  if (!answer.ok()) {
    fmt::print(stderr, "pliant resize: job '{}' has no coordinator ('pliant run --attach {}' starts one): {}\n",
               job.record.name, job.record.name, answer.error().message);
    return 1;
  }
  auto text = printable(answer.value().text);
  if (answer.value().ok) {
    fmt::print("{}\n", text);
    return 0;
  }
  fmt::print(stderr, "pliant resize: {}\n", text);
  return 1;
}

}  // namespace

void add_resize(CLI::App& app, Action& action) {
  struct Flags {
    std::string job;
    std::uint32_t workers = 0;
  };
  auto* command = app.add_subcommand("resize", "Change how many workers a job has");
  command->footer(
      "Takes effect between two steps. Workers that are too many wait, and are taken back first when there shall be\n"
      "more again.\n\n"
      "Examples:\n  pliant resize night 8");
  auto flags = std::make_shared<Flags>();
  command->add_option("JOB", flags->job, "Name of the job")->required();
  command->add_option("N", flags->workers, "So many workers")->required();
  command->callback([flags, &action] { action = [flags] { return resize(flags->job, flags->workers); }; });
}

}  // namespace pliant::cli
