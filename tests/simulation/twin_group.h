// The twin of a group: the collectives of one view between simulated processes. It shows one published word at a time,
// and anything may happen between two of them. Within a host a word is seen by all at once, as in shared memory;
// between hosts it travels with the letters.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "collective/group.h"
#include "simulation/process.h"

namespace pliant::sim {

class TwinGroup;
class TwinTransport;

/// What a rank publishes.
struct Word {
  enum class Kind { submitted, reduced, copied, row, confirmed };
  Kind kind = Kind::row;
  int rank = 0;
  std::string name{};               // of a reduction
  std::uint64_t use = 0;            // of that name
  double weight = 0;                // of what was submitted
  std::string bytes{};              // a row; this rank's stripe of a result; what a rank of another host submitted
  collective::Measured measured{};  // of this rank's stripe
};

struct TwinInput final : collective::InputMemory {
  explicit TwinInput(std::size_t bytes) : memory(bytes) {}
  std::vector<std::byte> memory;
};

/// What the members of a view have in common: on each host its shared memory.
struct TwinView {
  std::vector<std::vector<Word>> published;                                 // by rank
  std::vector<TwinGroup*> groups;                                           // of processes that are in it
  std::set<int> fenced;                                                     // ranks that have ended it
  std::map<std::string, std::map<int, std::shared_ptr<TwinInput>>> inputs;  // by region and rank
};

class TwinRegion final : public collective::Region {
 public:
  TwinRegion(std::shared_ptr<TwinView> view, std::vector<int> neighbours, std::string name, std::size_t bytes,
             std::shared_ptr<TwinInput> input, bool alone);
  ~TwinRegion() override;
  std::size_t bytes() const override { return input_->memory.size(); }
  std::byte* input() override { return input_->memory.data(); }
  const std::byte* input_of(int place) const override;
  std::byte* result(int which) override { return alone_ ? input() : results_[which].data(); }
  Input input_memory() const override { return input_; }
  bool ready() const override;
  const std::string& name() const { return name_; }

 private:
  const std::shared_ptr<TwinView> view_;
  const std::vector<int> neighbours_;  // ranks of this host
  const std::string name_;
  const std::shared_ptr<TwinInput> input_;
  const bool alone_;
  std::vector<std::byte> results_[2];
};

class TwinOperation final : public collective::Operation {
 public:
  bool done() const override { return done_; }
  const void* result() const override { return result_; }
  const collective::Measured& measured() const override { return measured_; }
  const std::vector<collective::MeasuredPart>& own_parts() const override { return parts_; }

 private:
  friend class TwinGroup;
  std::string name_;
  std::uint64_t use_ = 0;
  Dtype dtype_ = Dtype::f32;
  Op op_ = Op::sum;
  std::size_t count_ = 0, offset_ = 0;
  bool confirmed_later_ = false;
  collective::Measure measure_ = collective::Measure::nothing;
  std::shared_ptr<const collective::Marks> marks_;
  std::shared_ptr<TwinRegion> region_;  // registered memory, or
  std::vector<std::byte> in_;           // plain memory as it was submitted
  std::byte* out_ = nullptr;
  bool reduced_ = false, copied_ = false, done_ = false;
  void* result_ = nullptr;
  collective::Measured measured_;
  std::vector<collective::MeasuredPart> parts_;
};

class TwinGroup final : public collective::Group {
 public:
  /// `transport` is nullptr for a team of one.
  TwinGroup(Process& process, TwinTransport* transport, collective::Team team, std::shared_ptr<TwinView> view);
  ~TwinGroup() override;
  /// Waits until all have entered.
  Status enter();

  // ---- what the transport hears ----
  void entered(std::uint64_t id);
  void hear(const Word& word);
  void lost(const collective::PeerLoss& loss);
  std::uint64_t view_hash() const { return team_.view_hash; }

  // ---- collective::Group ----
  int rank() const override { return team_.rank; }
  int size() const override { return team_.size(); }
  bool is_local(int rank) const override { return host_of(rank) == host_of(team_.rank); }
  int place_of(int rank) const override;
  using Group::create_region;
  Result<std::shared_ptr<collective::Region>> create_region(const std::string& name, std::size_t bytes,
                                                            collective::Region::Input input) override;
  Result<collective::OperationHandle> submit(const collective::Request& request) override;
  Status wait(const collective::OperationHandle& operation) override;
  Result<std::vector<std::string>> exchange(std::string_view row) override;
  Status confirm() override;
  void fence(Error why) override;
  bool fenced() const override { return fenced_.has_value(); }
  bool settle(const collective::OperationHandle& operation) override;
  std::optional<std::vector<std::string>> settle_exchange() override;
  std::optional<std::string> published_row(int rank) override;
  std::optional<double> published_weight(const collective::OperationHandle& operation, int rank) override;
  void leave() override {}

 private:
  /// What is known of one use of a reduction's name.
  struct Use {
    std::map<int, Word> submitted, reduced;  // by rank
    std::set<int> copied;
  };

  const std::string& host_of(int rank) const { return team_.members[static_cast<std::size_t>(rank)].host; }
  std::vector<int> neighbours() const;
  bool several_hosts() const;
  /// As Engine::any_fenced().
  bool any_fenced() const { return !view_->fenced.empty(); }
  void publish(Word word);
  void apply(const Word& word);
  void advance_soon();
  void advance();
  bool advance(TwinOperation& operation);
  std::string stripe_of(TwinOperation& operation, Use& use);
  void reduce_parts(TwinOperation& operation, const collective::Recipe& recipe,
                    const std::vector<collective::Contribution>& inputs, std::pair<std::size_t, std::size_t> range,
                    char* out);
  void complete(TwinOperation& operation);
  bool all_reduced(const TwinOperation& operation);
  /// Waits for `done`; the error is why it never will be.
  template <class Done, class Lacks>
  Status await(const Done& done, const Lacks& lacks);
  std::size_t words_of(int rank, std::uint64_t rows) const;

  Process& process_;
  TwinTransport* const transport_;
  const collective::Team team_;
  const std::shared_ptr<TwinView> view_;
  std::set<int> present_, departed_;
  std::optional<Error> fenced_, failure_;
  bool advancing_ = false, exchange_open_ = false;
  std::uint64_t rows_ = 0, confirmed_ = 0;
  std::vector<std::vector<std::string>> seen_rows_;  // by rank
  std::vector<std::uint64_t> seen_confirmed_;        // by rank
  std::map<std::pair<std::string, std::uint64_t>, Use> uses_;
  std::map<std::string, std::uint64_t> next_use_;
  std::vector<std::shared_ptr<TwinOperation>> pending_;
  std::set<std::string> names_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace pliant::sim
