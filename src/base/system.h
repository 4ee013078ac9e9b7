// What this machine lets this process use.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace pliant {

/// Cores this process may really use: affinity mask and cgroup (v1 and v2) quotas, at least 1.
int usable_cores();

/// Bytes that this process can have at most, by the machine's and its cgroups' (v1 and v2) word, once the kernel has
/// taken back what it can. More than that will surely fail; less may fail too: only an allocation tells.
std::uint64_t available_memory();
/// The same of one cgroup, by its folder; nothing if it sets no limit. Page cache counts as free: the kernel gives it
/// up before it refuses memory.
std::optional<std::uint64_t> memory_left_in(const std::string& cgroup, bool v2);

/// CPU levels whose kernels may round differently. Members of a job must agree (invariant 7).
enum class CpuLevel : std::uint8_t { baseline, avx2, avx512 };
/// The best level of this CPU, or lower if PLIANT_CPU says so.
CpuLevel cpu_level();
std::string_view name_of(CpuLevel level);
/// This CPU multiplies eight 64-bit words at once (AVX-512 F and DQ), whatever PLIANT_CPU says: integers do not round.
bool has_wide_words();

/// From now on this thread gets the processor mostly when others do not need it.
void lower_priority();

/// An environment variable, if set and not empty.
std::optional<std::string> env(const char* name);
/// The process's start time in clock ticks since boot: with its pid, a name that is never reused.
std::optional<std::uint64_t> start_time_of(int pid);
/// The host's own name, as the kernel knows it.
std::string host_name();
/// Equal on processes that can share memory and see each other end: the host's name, and a hash of what its kernel says
/// about its boot and about this process's network and processes. Containers on one machine are hosts of their own.
std::string host_identity();
/// 64 bits from the kernel's random source.
std::uint64_t random_u64();

}  // namespace pliant
