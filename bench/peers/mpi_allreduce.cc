// MPI_Allreduce under the rules of repeat.h. Compiled once per MPI library; started by its mpirun.

#include <mpi.h>

#include <string>

#include "repeat.h"

namespace {

std::string library_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Get_library_version(text, &length);
  const std::string whole(text, static_cast<std::size_t>(length));
  // The first line or clause names the release; the rest is build options.
  std::string name = whole.substr(0, whole.find_first_of(",\n"));
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == '"' || c == '\\' || c == '\t'; }, ' ');
  return name;
}

// A window of zeroed memory that all ranks of the host share; freed with MPI itself.
void* shared_memory(std::size_t bytes, int rank, MPI_Win* window) {
  void* mine = nullptr;
  MPI_Win_allocate_shared(rank == 0 ? static_cast<MPI_Aint>(bytes + peers::kCacheLine) : 0, 1, MPI_INFO_NULL,
                          MPI_COMM_WORLD, &mine, window);
  MPI_Aint size = 0;
  int unit = 0;
  void* base = nullptr;
  MPI_Win_shared_query(*window, 0, &size, &unit, &base);
  if (rank == 0) std::memset(base, 0, bytes + peers::kCacheLine);
  MPI_Barrier(MPI_COMM_WORLD);
  // Every rank maps whole pages, so rounding up gives the same place everywhere.
  const auto address = reinterpret_cast<std::uintptr_t>(base);
  return reinterpret_cast<void*>((address + peers::kCacheLine - 1) / peers::kCacheLine * peers::kCacheLine);
}

// Blocks like MPI_Wait, but gives the core away between polls.
void wait_yielding(MPI_Request* request) {
  int done = 0;
  while (MPI_Test(request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && !done) sched_yield();
}

void barrier(const peers::Options& options) {
  if (!options.yield) {
    MPI_Barrier(MPI_COMM_WORLD);
    return;
  }
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Ibarrier(MPI_COMM_WORLD, &request);
  wait_yielding(&request);
}

void reduce(const peers::Options& options, float* input, float* result) {
  const void* from = input == result ? MPI_IN_PLACE : static_cast<const void*>(input);
  const int count = static_cast<int>(options.elements());
  if (!options.yield) {
    MPI_Allreduce(from, result, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    return;
  }
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Iallreduce(from, result, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, &request);
  wait_yielding(&request);
}

}  // namespace

int main(int argc, char** argv) {
  peers::die_with_parent();
  MPI_Init(&argc, &argv);
  int rank = 0;
  int ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const peers::Options options = peers::parse(argc, argv);
  if (options.ranks != 0 && options.ranks != ranks) peers::fail("the launcher started another number of ranks");

  const std::string version = library_version();
  MPI_Win window = MPI_WIN_NULL;
  void* memory = shared_memory(peers::Shared::bytes(ranks, options.iterations), rank, &window);
  peers::Shared shared(memory, ranks, options.iterations);
  const peers::Buffers buffers(options, ranks);

  peers::repeat(
      options, rank, ranks, buffers, shared, [&](float* input, float* result) { reduce(options, input, result); },
      [&] { barrier(options); });

  int status = shared.wrong() == 0 ? 0 : 1;
  if (rank == 0) {
    const char* peer = version.find("Open MPI") != std::string::npos ? "openmpi" : "mpich";
    status = peers::print_result(peer, version, options, ranks, buffers, shared);
  }
  MPI_Win_free(&window);
  MPI_Finalize();
  return status;
}
