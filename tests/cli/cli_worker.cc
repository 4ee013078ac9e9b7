// A worker that does what its arguments say, one after the other.
//
//   only=K ... all     what is between is for worker K alone
//   train=N            a real one: joins and trains N steps of 5 ms each, less if all see the file of `until`; says how
//                      many workers there are whenever that changes, and in the end what it has learned
//   until=FILE         see train
//   first=K            will make the first K steps of its training in a loop of their own, which it leaves by break and
//                      which says so; then it doubles what it has learned
//   between=FILE       that loop will ask for K steps and finish them; then says so, and waits until the file exists
//   crash=K            will exit with 7 in step K of its training
//   hands_over=FILE    worker 0 will be killed in the first step of its training with another worker, once that one has
//                      begun it too and made the file
//   quit=K             will exit with 0 in step K of its training
//   throw=K            will throw out of step K of its training, and catch it
//   outlives           its session will live on then: it says what comes of using it, and sleeps until it is killed
//   fork=K             will fork in step K of its training; the child throws and ends
//   weights=N          will share so many weights (16)
//   samples=N          will deal out so many samples, ten in each step of its training
//   pid=FILE           writes its process's number
//
// Workers of srun, mpirun and mpiexec are numbered as these do.
//
// The others speak the coordinator's protocol over net/socket, and know no peers:
//   join               joins and waits for the view; exits with 9 if it is refused
//   bye                says that its loop is finished; said at the end of the script too, if it has joined
//   falter             asks to join and hangs up
//   alike              will ask as one that trains would, so that others may train in the same job
//   wrong=WHAT         will ask with a wrong job, id or address
//   steps=N            sends N progress reports, 10 ms apart
//   await=K            waits until rank K's process has ended
//   wait=FILE          waits until the file exists
//   touch=FILE         makes the file
//   out=TEXT err=TEXT  writes a line
//   stubborn           ignores SIGTERM
//   forever            sleeps until it is killed
//   exit=N kill=N      ends with that code, or by that signal
#include <fmt/format.h>
#include <pliant/pliant.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "base/fd.h"
#include "base/system.h"
#include "net/socket.h"
#include "wire/messages.h"

namespace {

using namespace std::chrono_literals;
using pliant::env;
namespace net = pliant::net;
namespace wire = pliant::wire;

int own_number() {
  for (const char* name : {"PLIANT_WORKER", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"})
    if (auto number = env(name)) return std::atoi(number->c_str());
  return 0;
}

void write_pid(const std::string& path) {
  std::ofstream(path + ".draft") << getpid();
  std::filesystem::rename(path + ".draft", path);
}

struct Thrown {};

class Worker {
 public:
  void run(const std::string& verb, const std::string& value);
  int id() const { return id_; }
  void say_goodbye() {
    if (socket_ && view_.epoch) (void)net::send(socket_, wire::Bye{});
  }

 private:
  void ask();
  void join();
  void report(int steps);
  void await(int rank) const;
  void train(std::uint64_t steps);
  void train_first(pliant::Session& session, std::uint64_t steps, std::vector<float>& weights) const;
  void train_in(pliant::Session& session, std::uint64_t steps);
  [[noreturn]] static void live_on(pliant::Session& session);
  void hand_over() const;

  void fork_a_child();

  const pid_t process_ = getpid();
  int id_ = own_number();
  std::string wrong_;
  std::string build_ = "test";
  std::uint8_t cpu_level_ = 0;
  pliant::Fd socket_;
  wire::ViewNotice view_;
  std::string until_;
  std::optional<std::uint64_t> first_, crash_, quit_, throw_, fork_;
  bool outlives_ = false;
  std::string hands_over_, between_;
  std::size_t weights_ = 16;
  std::uint64_t samples_ = 0;
};

void Worker::ask() {
  socket_ = net::connect_to(env("PLIANT_COORDINATOR").value()).or_throw();
  wire::Join request{env("PLIANT_JOB").value(),
                     static_cast<std::uint64_t>(id_),
                     getpid(),
                     fmt::format("@test/{}", getpid()),
                     cpu_level_,
                     build_};
  if (wrong_ == "job") request.job = "another";
  if (wrong_ == "id") request.id = 7;
  net::send(socket_, request).or_throw();
}

void Worker::join() {
  ask();
  auto answer = net::receive_within(socket_, 10min).or_throw().message;
  if (const auto* refusal = std::get_if<wire::Refusal>(&answer)) {
    fmt::print(stderr, "refused: {}\n", refusal->reason);
    std::exit(9);
  }
  view_ = std::get<wire::ViewNotice>(answer);
}

void Worker::report(int steps) {
  for (int step = 1; step <= steps; ++step) {
    wire::Progress progress;
    progress.step = static_cast<std::uint64_t>(step);
    progress.steps = static_cast<std::uint64_t>(steps);
    progress.workers = 1;
    progress.epoch = 1;
    progress.epochs = 2;
    progress.samples = progress.step * 64;
    progress.samples_per_second = 1234;
    progress.loss = 0.25;
    [[maybe_unused]] auto sent = net::send(socket_, progress);
    std::this_thread::sleep_for(10ms);
  }
}

void Worker::train_first(pliant::Session& session, std::uint64_t steps, std::vector<float>& weights) const {
  for (auto step : session.steps({.steps = between_.empty() ? steps : *first_})) {
    if (step.index() >= *first_) break;
    if (step.index() == 0) fmt::print("the first loop\n"), std::fflush(stdout);
    for (auto& weight : weights) weight += 0.5F;
  }
  if (!between_.empty()) fmt::print("between two loops\n"), std::fflush(stdout);
  while (!between_.empty() && !std::filesystem::exists(between_)) std::this_thread::sleep_for(5ms);
  for (auto& weight : weights) weight *= 2;
}

void Worker::train(std::uint64_t steps) {
  auto session = pliant::Session::join();
  try {
    train_in(session, steps);
  } catch (const Thrown&) {
    if (!outlives_ || getpid() != process_) throw;
    live_on(session);
  }
}

void Worker::live_on(pliant::Session& session) {
  auto report = [](const char* what, const auto& use) {
    try {
      use();
    } catch (const pliant::Failure& failure) {
      fmt::print("{}: {}\n", what, failure.what()), std::fflush(stdout);
    }
  };
  report("average", [&] { session.average("anything", 1); });
  report("another loop", [&] { session.steps({.steps = 1}); });
  for (;;) pause();
}

void Worker::train_in(pliant::Session& session, std::uint64_t steps) {
  std::vector<float> weights(weights_, 1.0F);
  session.share("weights", pliant::state_of(std::span(weights)));
  std::optional<pliant::ElasticSampler> sampler;
  if (samples_) sampler.emplace(session, samples_, pliant::SampleOptions{.global_batch = 10});
  if (first_) train_first(session, steps, weights);
  int size = 0;
  for (auto step : session.steps({.steps = steps})) {
    if (session.size() != size) {
      size = session.size();
      fmt::print("step {}: {} of {}\n", step.index(), session.rank(), size), std::fflush(stdout);
    }
    if (step.index() == crash_) _exit(7);
    if (size > 1 && !hands_over_.empty()) hand_over();
    if (step.index() == quit_) std::exit(0);
    if (step.index() == throw_) throw Thrown();
    if (step.index() == fork_) fork_a_child();
    if (sampler) sampler->next();
    std::vector<float> change(weights.size(), 0.5F);
    session.all_reduce<float>("change", change, pliant::Op::mean);
    float stop = !until_.empty() && std::filesystem::exists(until_) ? 1 : 0;
    session.all_reduce<float>("stop", std::span(&stop, 1), pliant::Op::max);
    for (std::size_t i = 0; i < weights.size(); ++i) weights[i] += change[i];
    step.log("loss", 0.25);
    std::this_thread::sleep_for(5ms);
    if (stop > 0) break;
  }
  auto word = session.departed() ? "left" : "done";
  fmt::print("{} with {}\n", word, weights[0]), std::fflush(stdout);
}

void Worker::hand_over() const {
  if (id_ != 0) {
    std::ofstream(hands_over_) << "";
    return;
  }
  while (!std::filesystem::exists(hands_over_)) std::this_thread::sleep_for(1ms);
  raise(SIGKILL);
}

/// The child leaves the loop by an exception, and destroys what it has inherited. Its parent waits for that.
void Worker::fork_a_child() {
  auto child = fork();
  if (child == 0) throw Thrown();
  waitpid(child, nullptr, 0);
}

void Worker::await(int rank) const {
  auto pid = view_.members.at(static_cast<std::size_t>(rank)).pid;
  pliant::Fd pidfd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  pollfd waiting{pidfd.get(), POLLIN, 0};
  if (pidfd) poll(&waiting, 1, -1);
}

void Worker::run(const std::string& verb, const std::string& value) {
  std::map<std::string, std::function<void()>> verbs = {
      {"join", [&] { join(); }},
      {"falter",
       [&] {
         ask();
         socket_.reset();
       }},
      {"bye", [&] { say_goodbye(); }},
      {"train",
       [&] {
         try {
           train(std::stoull(value));
         } catch (const Thrown&) {
           if (getpid() != process_) _exit(0);
         }
       }},
      {"until", [&] { until_ = value; }},
      {"hands_over", [&] { hands_over_ = value; }},
      {"first", [&] { first_ = std::stoull(value); }},
      {"between", [&] { between_ = value; }},
      {"crash", [&] { crash_ = std::stoull(value); }},
      {"quit", [&] { quit_ = std::stoull(value); }},
      {"throw", [&] { throw_ = std::stoull(value); }},
      {"outlives", [&] { outlives_ = true; }},
      {"fork", [&] { fork_ = std::stoull(value); }},
      {"weights", [&] { weights_ = std::stoull(value); }},
      {"samples", [&] { samples_ = std::stoull(value); }},
      {"pid", [&] { write_pid(value); }},
      {"alike", [&] { build_ = PLIANT_VERSION, cpu_level_ = static_cast<std::uint8_t>(pliant::cpu_level()); }},
      {"wrong", [&] { wrong_ = value; }},
      {"steps", [&] { report(std::stoi(value)); }},
      {"await", [&] { await(std::stoi(value)); }},
      {"wait",
       [&] {
         while (!std::filesystem::exists(value)) std::this_thread::sleep_for(5ms);
       }},
      {"touch", [&] { std::ofstream file(value); }},
      {"out", [&] { fmt::print("{}\n", value), std::fflush(stdout); }},
      {"err", [&] { fmt::print(stderr, "{}\n", value); }},
      {"stubborn", [&] { std::signal(SIGTERM, SIG_IGN); }},
      {"forever",
       [&] {
         for (;;) pause();
       }},
      {"exit", [&] { _exit(std::stoi(value)); }},
      {"kill", [&] { kill(getpid(), std::stoi(value)); }},
  };
  verbs.at(verb)();
}

void run_script(std::span<char*> words) {
  Worker worker;
  bool mine = true;
  for (std::string word : words) {
    auto cut = word.find('=');
    auto verb = word.substr(0, cut);
    auto value = cut == std::string::npos ? std::string() : word.substr(cut + 1);
    if (verb == "only")
      mine = std::stoi(value) == worker.id();
    else if (verb == "all")
      mine = true;
    else if (mine)
      worker.run(verb, value);
  }
  worker.say_goodbye();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run_script(std::span(argv, static_cast<std::size_t>(argc)).subspan(1));
  } catch (const pliant::Failure& failure) {
    fmt::print(stderr, "cli_worker: {}\n", failure.what());
    return 1;
  }
  return 0;
}
