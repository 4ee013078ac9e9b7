#include "collective/rows.h"

namespace pliant::collective {
namespace {

std::string row_of(const Control& control, std::uint64_t number) {
  auto at = (number - 1) % 2;
  return {control.row[at], std::min<std::size_t>(control.row_size[at], kRowBytes)};
}

}  // namespace

void Rows::publish(std::string_view row) {
  auto at = number_ % 2;
  row.copy(own_->row[at], row.size());  // an empty row may have no address
  own_->row_size[at] = static_cast<std::uint32_t>(row.size());
  own_->rows.store(++number_, std::memory_order_seq_cst);
  open_ = true;
}

std::vector<std::string> Rows::take() {
  open_ = false;
  std::vector<std::string> rows;
  rows.reserve(all_.size());
  for (const auto* control : all_) rows.push_back(row_of(*control, number_));
  return rows;
}

std::optional<std::vector<std::string>> Rows::settle() {
  if (!open_) return std::nullopt;
  for (int rank = 0; rank < static_cast<int>(all_.size()); ++rank)
    if (lacks(rank)) return std::nullopt;
  return take();
}

std::optional<std::string> Rows::published_by(int rank) const {
  auto number = open_ ? number_ : number_ + 1;
  if (all_[rank]->rows.load(std::memory_order_acquire) < number) return std::nullopt;
  return row_of(*all_[rank], number);
}

}  // namespace pliant::collective
