// gloo::allreduce under the rules of repeat.h: TCP on loopback or between network
// namespaces, ranks forked here, rendezvous through files.

#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/config.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>
#include <sys/wait.h>
#include <unistd.h>

#include <exception>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "repeat.h"

namespace {

using Algorithm = gloo::AllreduceOptions::Algorithm;

Algorithm algorithm_of(const peers::Options& options) {
  if (options.algorithm == "ring") return Algorithm::RING;
  if (options.algorithm == "bcube") return Algorithm::BCUBE;
  if (options.algorithm.empty()) return Algorithm::UNSPECIFIED;
  peers::fail("--algorithm is ring or bcube");
}

void reduce(const std::shared_ptr<gloo::Context>& context, Algorithm algorithm, float* input, float* result,
            std::size_t elements) {
  gloo::AllreduceOptions options(context);
  options.setAlgorithm(algorithm);
  if (input != result) options.setInput(input, elements);
  options.setOutput(result, elements);
  options.setReduceFunction(static_cast<void (*)(void*, const void*, const void*, std::size_t)>(&gloo::sum<float>));
  gloo::allreduce(options);
}

int run_rank(const peers::Options& options, int rank, const std::string& meeting, peers::Shared& shared) {
  gloo::transport::tcp::attr address(peers::enter_host(options, rank).c_str());
  auto device = gloo::transport::tcp::CreateDevice(address);
  gloo::rendezvous::FileStore store(meeting);
  auto context = std::make_shared<gloo::rendezvous::Context>(rank, options.ranks);
  context->connectFullMesh(store, device);

  const peers::Buffers buffers(options, options.ranks);
  const Algorithm algorithm = algorithm_of(options);
  peers::repeat(
      options, rank, options.ranks, buffers, shared,
      [&](float* input, float* result) { reduce(context, algorithm, input, result, options.elements()); },
      [&] {
        gloo::BarrierOptions barrier(context);
        gloo::barrier(barrier);
      });
  if (rank != 0) return shared.wrong() == 0 ? 0 : 1;
  const std::string version = "Gloo " + std::to_string(GLOO_VERSION_MAJOR) + "." + std::to_string(GLOO_VERSION_MINOR) +
                              "." + std::to_string(GLOO_VERSION_PATCH);
  return peers::print_result("gloo", version, options, options.ranks, buffers, shared);
}

// Never returns: a forked rank must not run the parent's clean-up.
[[noreturn]] void become_rank(const peers::Options& options, int rank, const std::string& meeting,
                              peers::Shared& shared) {
  peers::die_with_parent();
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
  int status = 2;
  try {
    status = run_rank(options, rank, meeting, shared);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "rank %d: %s\n", rank, e.what());
  }
  _exit(status);
}

// Makes wait() return early, so that main still ends the ranks and removes its directory.
void interrupt_waits() {
  struct sigaction action {};
  action.sa_handler = [](int) {};
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

// A rank that failed leaves the others at the gate for ever: end them with it.
int wait_for_all(std::vector<pid_t> running) {
  int worst = 0;
  while (!running.empty()) {
    int status = 0;
    const pid_t ended = wait(&status);
    std::erase(running, ended);
    const int code = ended > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : 2;
    if (code > 1) {
      for (const pid_t child : running) kill(child, SIGKILL);
    }
    worst = std::max(worst, code);
  }
  return worst;
}

}  // namespace

int main(int argc, char** argv) {
  peers::die_with_parent();
  const peers::Options options = peers::parse(argc, argv);
  if (options.ranks < 1) peers::fail("--ranks is needed");
  algorithm_of(options);

  const std::size_t bytes = peers::Shared::bytes(options.ranks, options.iterations);
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) peers::fail("no shared memory");
  peers::Shared shared(memory, options.ranks, options.iterations);

  std::string meeting = (std::filesystem::temp_directory_path() / "gloo-peer-XXXXXX").string();
  if (mkdtemp(meeting.data()) == nullptr) peers::fail("no directory for the rendezvous");
  interrupt_waits();
  std::vector<pid_t> children;
  for (int rank = 0; rank < options.ranks; ++rank) {
    const pid_t child = fork();
    if (child < 0) peers::fail("fork failed");
    if (child == 0) become_rank(options, rank, meeting, shared);
    children.push_back(child);
  }
  const int worst = wait_for_all(std::move(children));
  std::error_code ignored;
  std::filesystem::remove_all(meeting, ignored);
  return worst;
}
