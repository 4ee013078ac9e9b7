#include "simulation/twin_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/planted.h"
#include "collective/control.h"
#include "collective/kernels.h"
#include "simulation/twin_transport.h"
#include "simulation/world.h"

namespace pliant::sim {

using collective::OperationHandle;
using collective::Request;

namespace {

/// Which elements of a result a rank finalises.
std::pair<std::size_t, std::size_t> stripe(std::size_t count, int rank, int size) {
  auto r = static_cast<std::size_t>(rank), n = static_cast<std::size_t>(size);
  return {count * r / n, count * (r + 1) / n};
}

const std::byte* bytes_of(const std::string& text) { return reinterpret_cast<const std::byte*>(text.data()); }

}  // namespace

// ---- entering ----

TwinGroup::TwinGroup(Process& process, TwinTransport* transport, collective::Team team, std::shared_ptr<TwinView> view)
    : process_(process),
      transport_(transport),
      team_(std::move(team)),
      view_(std::move(view)),
      seen_rows_(team_.members.size()),
      seen_confirmed_(team_.members.size()) {
  view_->published.resize(team_.members.size());
  view_->groups.push_back(this);
  view_->fenced.erase(team_.rank);  // every group has control words of its own
  for (int rank : neighbours())
    for (const auto& word : view_->published[static_cast<std::size_t>(rank)]) apply(word);
}

TwinGroup::~TwinGroup() {
  *alive_ = false;
  std::erase(view_->groups, this);
  if (transport_) transport_->unsubscribe(*this);
}

Status TwinGroup::enter() {
  if (!transport_) return {};
  process_.breathe();
  transport_->subscribe(*this);
  transport_->expect(team_.members);
  std::vector<std::uint64_t> others;
  for (const auto& member : team_.members)
    if (member.id != process_.id()) others.push_back(member.id);
  transport_->send(others, wire::Entered{team_.view_hash, team_.view});
  auto began = process_.world().now();
  while (present_.size() + 1 < team_.members.size()) {
    if (failure_) return *failure_;
    if (planted("view-time-limit") && process_.world().now() - began > seconds(30))
      return Error{Code::io, "no sign within 30 s"};
    process_.sleep(process_.world().rng().between(microseconds(50), milliseconds(5)));
    if (team_.has_ended && team_.has_ended()) return Error{Code::peer_lost, "others have gone on to another view"};
  }
  if (failure_) return *failure_;
  return {};
}

void TwinGroup::entered(std::uint64_t id) {
  for (int rank = 0; rank < size(); ++rank)
    if (team_.members[static_cast<std::size_t>(rank)].id == id) present_.insert(rank);
}

void TwinGroup::lost(const collective::PeerLoss& loss) {
  for (int rank = 0; rank < size(); ++rank) {
    if (team_.members[static_cast<std::size_t>(rank)].id != loss.id) continue;
    Error why{Code::peer_lost, fmt::format("rank {} (worker {}) {}", rank, loss.id, loss.orderly ? "left" : "died")};
    failure_ = why;
    if (loss.orderly)
      departed_.insert(rank);
    else
      fence(why);
    process_.wake();
  }
}

std::vector<int> TwinGroup::neighbours() const {
  std::vector<int> ranks;
  for (int rank = 0; rank < size(); ++rank)
    if (is_local(rank)) ranks.push_back(rank);
  return ranks;
}

bool TwinGroup::several_hosts() const { return neighbours().size() < team_.members.size(); }

int TwinGroup::place_of(int rank) const {
  int place = 0;
  for (int other = 0; other < rank; ++other) place += host_of(other) == host_of(rank);
  return place;
}

// ---- words ----

/// A word is out before the fence, or never; and the dead say nothing.
void TwinGroup::publish(Word word) {
  if (fenced_ || !process_.alive()) return;
  word.rank = team_.rank;
  process_.world().published(process_, word);
  view_->published[static_cast<std::size_t>(team_.rank)].push_back(word);
  auto groups = view_->groups;
  for (auto* group : groups)
    if (group->is_local(team_.rank)) group->hear(word);
  if (!transport_ || !several_hosts()) return;
  for (int rank = 0; rank < size(); ++rank)
    if (!is_local(rank)) transport_->send_word(team_.members[static_cast<std::size_t>(rank)].id, team_.view_hash, word);
}

void TwinGroup::hear(const Word& word) {
  apply(word);
  advance_soon();
  process_.wake();
}

void TwinGroup::apply(const Word& word) {
  auto rank = static_cast<std::size_t>(word.rank);
  switch (word.kind) {
    case Word::Kind::row:
      seen_rows_[rank].push_back(word.bytes);
      break;
    case Word::Kind::confirmed:
      ++seen_confirmed_[rank];
      break;
    case Word::Kind::submitted:
      uses_[{word.name, word.use}].submitted[word.rank] = word;
      break;
    case Word::Kind::reduced:
      uses_[{word.name, word.use}].reduced[word.rank] = word;
      break;
    case Word::Kind::copied:
      uses_[{word.name, word.use}].copied.insert(word.rank);
      break;
  }
}

/// What production does in whichever thread waits, or in one of its own.
void TwinGroup::advance_soon() {
  if (std::exchange(advancing_, true)) return;
  auto delay = process_.world().rng().between(Nanos(200), microseconds(20));
  process_.later(delay, [this, alive = alive_] {
    if (!*alive) return;
    advancing_ = false;
    advance();
  });
}

void TwinGroup::advance() {
  if (fenced_) return;
  for (std::size_t i = 0; i < pending_.size(); ++i) {
    auto operation = pending_[i];
    if (!advance(*operation)) continue;
    advance_soon();
    break;
  }
  std::erase_if(pending_, [](const auto& operation) { return operation->done_; });
}

/// At most one word at a time.
bool TwinGroup::advance(TwinOperation& operation) {
  auto all = team_.members.size();
  auto& use = uses_[{operation.name_, operation.use_}];
  if (!operation.reduced_ && use.submitted.size() == all) {
    operation.reduced_ = true;
    auto part = stripe_of(operation, use);
    publish({Word::Kind::reduced, 0, operation.name_, operation.use_, 0, std::move(part), operation.measured_});
    return true;
  }
  if (!operation.reduced_ || use.reduced.size() < all) return false;
  if (several_hosts() && !operation.confirmed_later_) {
    if (!std::exchange(operation.copied_, true)) {
      publish({Word::Kind::copied, 0, operation.name_, operation.use_});
      return true;
    }
    if (use.copied.size() < all) return false;
  }
  if (!several_hosts() && !operation.confirmed_later_ && any_fenced()) return false;
  complete(operation);
  process_.wake();
  return true;
}

/// This rank's part of the result, from what everybody's memory holds now.
std::string TwinGroup::stripe_of(TwinOperation& operation, Use& use) {
  auto [begin, end] = stripe(operation.count_, team_.rank, size());
  auto element = size_of(operation.dtype_);
  std::string out((end - begin) * element, '\0');
  std::vector<double> weights;
  std::vector<collective::Contribution> parts;
  for (auto& [rank, word] : use.submitted) {
    if (!(word.weight > 0)) continue;
    const auto* from = bytes_of(word.bytes);
    if (operation.region_ && is_local(rank))
      from = view_->inputs.at(operation.region_->name()).at(rank)->memory.data() + operation.offset_;
    parts.push_back({from, 0, word.weight});
    weights.push_back(word.weight);
  }
  std::vector<double> shares(weights.size());
  auto recipe = collective::recipe_for(operation.dtype_, operation.op_, weights, shares);
  recipe.squares = operation.measure_ != collective::Measure::nothing;
  recipe.spread = operation.measure_ == collective::Measure::spread;
  for (std::size_t i = 0; i < parts.size(); ++i) parts[i].share = shares[i];
  reduce_parts(operation, recipe, parts, {begin, end}, out.data());
  return out;
}

/// Elements from `range.first` to `range.second`, each marked part of them by itself.
void TwinGroup::reduce_parts(TwinOperation& operation, const collective::Recipe& recipe,
                             const std::vector<collective::Contribution>& inputs,
                             std::pair<std::size_t, std::size_t> range, char* out) {
  auto element = size_of(operation.dtype_);
  std::vector<std::size_t> begins{0};
  if (operation.marks_) begins.clear();
  for (std::size_t i = 0; operation.marks_ && i < operation.marks_->size(); ++i)
    begins.push_back(((*operation.marks_)[i] - operation.offset_) / element);
  operation.measured_ = {};
  operation.parts_.assign(operation.marks_ ? begins.size() : 0, {});
  for (std::size_t i = 0; i < begins.size(); ++i) {
    auto from = std::max(range.first, begins[i]);
    auto to = std::min(range.second, i + 1 < begins.size() ? begins[i + 1] : operation.count_);
    if (from >= to) continue;
    auto moved = inputs;
    for (auto& input : moved) input.data = static_cast<const std::byte*>(input.data) + from * element;
    auto measured = collective::reduce(recipe, out + (from - range.first) * element, moved, to - from);
    operation.measured_ += measured;
    if (operation.marks_) operation.parts_[i] = {measured, to - from};
  }
}

bool TwinGroup::all_reduced(const TwinOperation& operation) {
  return uses_[{operation.name_, operation.use_}].reduced.size() == team_.members.size();
}

void TwinGroup::complete(TwinOperation& operation) {
  auto element = size_of(operation.dtype_);
  auto* to = operation.region_ ? static_cast<std::byte*>(operation.result_) : operation.out_;
  operation.measured_ = {};
  for (const auto& [rank, word] : uses_[{operation.name_, operation.use_}].reduced) {
    std::memcpy(to + stripe(operation.count_, rank, size()).first * element, word.bytes.data(), word.bytes.size());
    operation.measured_ += word.measured;
  }
  operation.done_ = true;
  operation.region_.reset();  // whoever reads the result keeps it
}

// ---- collectives ----

Result<std::shared_ptr<collective::Region>> TwinGroup::create_region(const std::string& name, std::size_t bytes,
                                                                     collective::Region::Input input) {
  if (bytes == 0) return Error{Code::invalid, fmt::format("region '{}' has no bytes", name)};
  if (!names_.insert(name).second) return Error{Code::invalid, fmt::format("region '{}' exists already", name)};
  auto region = std::make_shared<TwinRegion>(view_, neighbours(), name, bytes,
                                             std::dynamic_pointer_cast<TwinInput>(input), size() == 1);
  view_->inputs[name][team_.rank] = std::static_pointer_cast<TwinInput>(region->input_memory());
  return std::shared_ptr<collective::Region>(region);
}

Result<OperationHandle> TwinGroup::submit(const Request& request) {
  process_.breathe();
  auto operation = std::make_shared<TwinOperation>();
  operation->name_ = request.name;
  operation->use_ = next_use_[operation->name_]++;
  operation->dtype_ = request.dtype;
  operation->op_ = request.op;
  operation->count_ = request.count;
  operation->offset_ = request.offset;
  operation->confirmed_later_ = request.confirmed_later;
  operation->measure_ = request.measure;
  operation->marks_ = request.marks;
  operation->region_ = std::static_pointer_cast<TwinRegion>(request.region);
  auto bytes = request.count * size_of(request.dtype);
  const auto* from = static_cast<const std::byte*>(request.in);
  if (operation->region_) {
    from = operation->region_->input() + request.offset;
    operation->result_ = operation->region_->result(static_cast<int>(operation->use_ % 2)) + request.offset;
  }
  operation->out_ = static_cast<std::byte*>(request.out);
  pending_.push_back(operation);
  // Neighbours read registered memory where it is.
  bool travels = !operation->region_ || several_hosts();
  publish({Word::Kind::submitted, 0, operation->name_, operation->use_, request.weight,
           travels ? std::string(reinterpret_cast<const char*>(from), bytes) : ""});
  return OperationHandle(operation);
}

template <class Done, class Lacks>
Status TwinGroup::await(const Done& done, const Lacks& lacks) {
  for (;;) {
    if (done()) return {};
    if (fenced_) return *fenced_;
    for (int rank : departed_)
      if (lacks(rank)) return Error{Code::peer_lost, fmt::format("rank {} has left the job", rank)};
    process_.park();
  }
}

Status TwinGroup::wait(const OperationHandle& handle) {
  auto& operation = static_cast<TwinOperation&>(*handle);
  process_.breathe();
  return await([&] { return operation.done_; },
               [&](int rank) {
                 auto& use = uses_[{operation.name_, operation.use_}];
                 return !use.submitted.contains(rank) || !use.reduced.contains(rank);
               });
}

Result<std::vector<std::string>> TwinGroup::exchange(std::string_view row) {
  if (row.size() > collective::kRowBytes) return Error{Code::invalid, "a row that is too long"};
  process_.breathe();
  if (fenced_) return *fenced_;
  ++rows_;
  exchange_open_ = true;
  publish({Word::Kind::row, 0, "", 0, 0, std::string(row)});
  process_.breathe();
  auto has = [&](int rank) { return seen_rows_[static_cast<std::size_t>(rank)].size() >= rows_; };
  PLIANT_TRY(await(
      [&] {
        for (int rank = 0; rank < size(); ++rank)
          if (!has(rank)) return false;
        return true;
      },
      [&](int rank) { return !has(rank); }));
  exchange_open_ = false;
  std::vector<std::string> rows;
  for (const auto& seen : seen_rows_) rows.push_back(seen[rows_ - 1]);
  return rows;
}

Status TwinGroup::confirm() {
  process_.breathe();
  if (!several_hosts()) {
    if (!any_fenced()) return {};
    return fenced_ ? *fenced_ : Error{Code::peer_lost, "another worker has ended the view"};
  }
  if (fenced_) return *fenced_;
  ++confirmed_;
  publish({Word::Kind::confirmed});
  auto has = [&](int rank) { return seen_confirmed_[static_cast<std::size_t>(rank)] >= confirmed_; };
  return await(
      [&] {
        for (int rank = 0; rank < size(); ++rank)
          if (!has(rank)) return false;
        return true;
      },
      // Production asks for rows here.
      [&](int rank) { return seen_rows_[static_cast<std::size_t>(rank)].size() < rows_; });
}

}  // namespace pliant::sim
