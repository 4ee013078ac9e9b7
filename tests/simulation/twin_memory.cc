// What the twin of a group has in memory: its regions, and what can be read of it when its view has ended.
#include <algorithm>

#include "simulation/twin_group.h"
#include "simulation/world.h"

namespace pliant::sim {

using collective::OperationHandle;

// ---- regions ----

TwinRegion::TwinRegion(std::shared_ptr<TwinView> view, std::vector<int> neighbours, std::string name, std::size_t bytes,
                       std::shared_ptr<TwinInput> input, bool alone)
    : view_(std::move(view)),
      neighbours_(std::move(neighbours)),
      name_(std::move(name)),
      input_(input && input->memory.size() == bytes ? std::move(input) : std::make_shared<TwinInput>(bytes)),
      alone_(alone) {
  if (!alone)
    for (auto& result : results_) result.resize(bytes);
}

/// Whoever still reads a result then reads nonsense, which the checker sees.
TwinRegion::~TwinRegion() {
  for (auto& result : results_) std::fill(result.begin(), result.end(), std::byte{0xee});
}

const std::byte* TwinRegion::input_of(int place) const {
  return view_->inputs.at(name_).at(neighbours_.at(static_cast<std::size_t>(place)))->memory.data();
}

bool TwinRegion::ready() const {
  auto known = view_->inputs.find(name_);
  return known != view_->inputs.end() &&
         std::ranges::all_of(neighbours_, [&](int rank) { return known->second.contains(rank); });
}

// ---- the end of a view ----

void TwinGroup::fence(Error why) {
  if (!fenced_) process_.world().note(process_, "fences a group of {}: {}", team_.members.size(), why.message);
  bool first = !fenced_;
  if (first) fenced_ = std::move(why);
  if (process_.alive()) view_->fenced.insert(team_.rank);
  if (first) process_.world().fences(process_);
  process_.wake();
}

bool TwinGroup::settle(const OperationHandle& handle) {
  auto& operation = static_cast<TwinOperation&>(*handle);
  if (operation.done_) return true;
  if (operation.region_ && !operation.region_->ready()) return false;
  if (!all_reduced(operation)) return false;
  complete(operation);
  return true;
}

std::optional<std::vector<std::string>> TwinGroup::settle_exchange() {
  if (!exchange_open_) return std::nullopt;
  for (const auto& seen : seen_rows_)
    if (seen.size() < rows_) return std::nullopt;
  exchange_open_ = false;
  std::vector<std::string> rows;
  for (const auto& seen : seen_rows_) rows.push_back(seen[rows_ - 1]);
  return rows;
}

std::optional<std::string> TwinGroup::published_row(int rank) {
  auto number = exchange_open_ ? rows_ : rows_ + 1;
  const auto& seen = seen_rows_[static_cast<std::size_t>(rank)];
  if (seen.size() < number) return std::nullopt;
  return seen[number - 1];
}

std::optional<double> TwinGroup::published_weight(const OperationHandle& handle, int rank) {
  const auto& operation = static_cast<TwinOperation&>(*handle);
  const auto& submitted = uses_[{operation.name_, operation.use_}].submitted;
  auto word = submitted.find(rank);
  if (word == submitted.end()) return std::nullopt;
  return word->second.weight;
}

}  // namespace pliant::sim
