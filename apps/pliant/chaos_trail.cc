#include "apps/pliant/chaos_trail.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <system_error>
#include <variant>

#include "base/fd.h"
#include "record/line.h"

namespace pliant::cli::chaos {

void Trail::poll() {
  if (dir_.empty()) return;
  std::error_code problem;
  for (std::filesystem::directory_iterator entry(dir_, problem), end; !problem && entry != end;
       entry.increment(problem)) {
    auto name = entry->path().filename().string();
    if (name.starts_with("worker-") && name.ends_with(".jsonl")) read(entry->path().string(), files_[name]);
  }
}

void Trail::read(const std::string& path, File& file) {
  Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!fd) return;
  std::array<char, 65536> buffer{};
  for (ssize_t size = 0; (size = pread(fd.get(), buffer.data(), buffer.size(), static_cast<off_t>(file.read))) > 0;) {
    file.read += static_cast<std::uint64_t>(size);
    file.torn.append(buffer.data(), static_cast<std::size_t>(size));
    std::size_t begin = 0;
    for (std::size_t end = 0; (end = file.torn.find('\n', begin)) != std::string::npos; begin = end + 1)
      take(file.torn.substr(begin, end - begin));
    file.torn.erase(0, begin);
    if (file.torn.size() > record::kLongestLine) file.torn.clear();  // no record: what is left of it is refused below
  }
}

void Trail::take(const std::string& line) {
  auto decoded = record::decode_line(line);
  if (!decoded.ok()) return;  // `pliant verify` complains, at the end
  const auto* step = std::get_if<record::StepRecord>(&decoded.value());
  if (!step) return;
  last_[step->worker] = {step->t, step->step, {step->lineage, step->view}};
  auto [at, fresh] = steps_.try_emplace(step->place(), StepTime{step->t, step->epoch});
  if (!fresh) at->second.t = std::min(at->second.t, step->t);
}

std::optional<Trail::Last> Trail::last_of(std::uint64_t worker) const {
  auto found = last_.find(worker);
  if (found == last_.end()) return std::nullopt;
  return found->second;
}

std::optional<std::uint64_t> Trail::newest() const {
  if (steps_.empty()) return std::nullopt;
  return steps_.rbegin()->first.second;
}

}  // namespace pliant::cli::chaos
