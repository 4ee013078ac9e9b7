#include "collective/parked.h"

#include <algorithm>
#include <utility>

namespace pliant::collective {

std::uint64_t view_of(const wire::Message& message) {
  if (const auto* entered = std::get_if<wire::Entered>(&message)) return entered->view_hash;
  if (const auto* region = std::get_if<wire::RegionNotice>(&message)) return region->view_hash;
  return 0;
}

void Parked::park(Letter letter) {
  auto hash = view_of(letter.message);
  auto view = views_.find(hash);
  if (const auto* entered = std::get_if<wire::Entered>(&letter.message)) {
    if (entered->view.epoch < newest_) return;
    if (view == views_.end()) view = views_.emplace(hash, View{entered->view.epoch, {}}).first;
  } else {
    bool has_entered = view != views_.end() && std::ranges::any_of(view->second.letters, [&](const Letter& earlier) {
                         return earlier.from == letter.from;
                       });
    if (!has_entered) return;
  }
  auto from = letter.from;
  view->second.letters.push_back(std::move(letter));
  ++size_;
  drop_oldest_of(from);
  if (size_ > kMostLetters) drop_oldest();
}

void Parked::drop_oldest_of(std::uint64_t id) {
  std::vector<View*> entered;
  for (auto& [hash, view] : views_)
    if (std::ranges::any_of(view.letters, [&](const Letter& letter) { return letter.from == id; }))
      entered.push_back(&view);
  if (entered.size() <= kMostViewsEach) return;
  auto* oldest = *std::ranges::min_element(entered, {}, &View::number);
  std::erase_if(oldest->letters, [&](const Letter& letter) { return letter.from == id; });
  std::erase_if(views_, [](const auto& entry) { return entry.second.letters.empty(); });
  count();
}

std::vector<Letter> Parked::take(std::uint64_t view_hash, std::uint64_t number) {
  newest_ = std::max(newest_, number);
  std::vector<Letter> letters;
  if (auto view = views_.extract(view_hash)) letters = std::move(view.mapped().letters);
  std::erase_if(views_, [&](const auto& entry) { return entry.second.number < newest_; });
  count();
  return letters;
}

void Parked::drop_from(std::uint64_t id) {
  for (auto& [hash, view] : views_)
    std::erase_if(view.letters, [&](const Letter& letter) { return letter.from == id; });
  std::erase_if(views_, [](const auto& entry) { return entry.second.letters.empty(); });
  count();
}

void Parked::drop_oldest() {
  auto oldest = std::ranges::min_element(views_, {}, [](const auto& entry) { return entry.second.number; });
  views_.erase(oldest);
  count();
}

void Parked::count() {
  size_ = 0;
  for (const auto& [hash, view] : views_) size_ += view.letters.size();
}

}  // namespace pliant::collective
