#include "apps/pliant/ask.h"

#include <chrono>
#include <optional>
#include <thread>
#include <utility>
#include <variant>

#include "apps/pliant/agent.h"
#include "net/dialer.h"
#include "net/loop.h"

namespace pliant::cli {
namespace {

using namespace std::chrono_literals;

constexpr Nanos kTimeToAnswer = 10s;
constexpr auto kBetweenLooks = 100ms;  // at the clock
constexpr auto kBetweenAttempts = 50ms;

/// One call: connected, said, answered.
class Conversation {
 public:
  Conversation(const Job& job, wire::Message message, bool wants_answer)
      : message_(std::move(message)), wants_answer_(wants_answer), end_(clock_.now() + kTimeToAnswer) {
    const auto& plan = job.record.plan;
    auto address = plan.store.empty() ? plan.coordinator : "file:" + place_file(job.dir);
    std::optional<net::Credentials> credentials;
    if (!plan.store.empty() || net::is_remote(address))
      credentials = agent_credentials(job.record.job_name(), net::Secret::from_file(secret_file(job.dir)).or_throw());
    dialer_.emplace(
        loop_, address, std::move(credentials), [this](net::Line line) { on_line(std::move(line)); },
        [this](const Error& error) { finish(error); });
    loop_.every(kBetweenLooks, [this] { look(); });
  }
  Result<wire::Answer> run() {
    dialer_->call();
    if (!result_) loop_.run();
    return *result_;
  }

 private:
  void on_line(net::Line line) {
    line_ = std::move(line);
    loop_.watch(line_.fd(), [this] { look(); });
    if (auto sent = line_.try_send(message_); !sent.ok()) return finish(sent.error());
    look();
  }
  void look();
  void finish(Result<wire::Answer> result) {
    if (!result_) result_ = std::move(result);
    loop_.stop();
  }

  SteadyClock clock_;
  net::Loop loop_;
  const wire::Message message_;
  const bool wants_answer_;
  const Nanos end_;
  std::optional<net::Dialer> dialer_;
  net::Line line_;
  std::optional<Result<wire::Answer>> result_;
};

void Conversation::look() {
  if (result_) return;
  if (clock_.now() >= end_) return finish(Error{Code::peer_lost, "the coordinator does not answer"});
  if (!line_) return;
  auto flushed = line_.flush();
  if (!flushed.ok()) return finish(flushed.error());
  if (!wants_answer_ && flushed.value()) return finish(wire::Answer{});
  auto received = line_.receive();
  if (!received.ok()) return finish(received.error());
  if (!received.value()) return;
  const auto& message = received.value()->message;
  if (const auto* answer = std::get_if<wire::Answer>(&message)) return finish(*answer);
  if (const auto* refusal = std::get_if<wire::Refusal>(&message)) return finish(wire::Answer{0, refusal->reason});
  finish(Error{Code::protocol, "the coordinator did not answer the question"});
}

}  // namespace

Result<wire::Answer> ask_coordinator(const Job& job, const wire::Message& wish, Nanos limit) {
  SteadyClock clock;
  auto end = clock.now() + limit;
  while (true) {
    auto answer = Conversation(job, wish, true).run();
    if (answer.ok() || !job.agent_alive || clock.now() >= end) return answer;
    std::this_thread::sleep_for(kBetweenAttempts);
  }
}

Status tell_coordinator(const Job& job, const wire::Message& message) {
  auto said = Conversation(job, message, false).run();
  return said.ok() ? Status() : said.error();
}

}  // namespace pliant::cli
