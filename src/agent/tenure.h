// A coordinator's hold on its place, where a store outside of the job says who coordinates (agent/election.h): what it
// takes over from its predecessor, what it leaves to its successor, and what it may promise meanwhile.
//
//   event                                       action
//   begins                                      read the place. Another one's: succeeded
//   it is ours                                  read what the predecessor remembered, and serve
//   ... which cannot be read                    try again: whoever takes over a job must know what was promised, and
//                                               neither begin it anew nor write less over it
//   ... there is nothing                        serve a new job, if it is this one's to begin and it has not begun by
//                                               what a coordinator of this host left in writing; if it has, go on with
//                                               that. Else try again: the job is over and forgotten, or has not begun
//   it remembers something new                  write it; one write at a time, the newest next
//   somebody is to hear what follows from that  once it is written, and the place is still ours then: the successor
//                                               knows. The store does not answer for kPatience: say so
//   the place is another's                      succeeded: members follow who has the higher term; that this one ends
//                                               saves them the choice
//   place or memory is gone, or does not count  store it again, unless the job is over: then it was forgotten
//   (membership/signed_store.h)
//
// Without a store there is nothing to wait for: everything is sure at once.
// Threads: those of the store's callbacks, which is one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "membership/coordinator.h"
#include "membership/store.h"

namespace pliant::agent {

struct TenureOptions {
  std::string job;                          ///< its name in the store
  std::string place;                        ///< where this coordinator is, as the election offered it
  std::optional<membership::Memory> own{};  ///< what a coordinator left on this host; with a store, its facts count too
  bool founds = true;                       ///< a job of which the store knows nothing
};

struct TenureEvents {
  /// Serve from now on, with what is known of the job. Called once, within begin() if there is no store.
  std::function<void(const std::optional<membership::Memory>& memory)> serve;
  /// Another one coordinates. Nothing is called any more.
  std::function<void()> succeeded;
};

class Tenure {
 public:
  /// For the store to answer, before what it should know is said all the same.
  static constexpr Nanos kPatience = std::chrono::seconds(2);

  /// `store`: nullptr if there is none. The clock must outlive it. Nothing is called after the destructor.
  Tenure(const Clock& clock, std::unique_ptr<membership::Store> store, TenureOptions options, TenureEvents events);
  Tenure(const Tenure&) = delete;
  Tenure& operator=(const Tenure&) = delete;

  void begin();
  /// Now and then: whether the store still says what it should.
  void look();
  /// The successor must know this, before anybody hears of it.
  void remember(const membership::Memory& memory);
  /// What is said binds the successor too: `say` it once that one would know, or with false if that cannot be found
  /// out. Never called if there is another one already, which has not heard of it.
  void once_sure(std::function<void(bool sure)> say);
  /// A successor would know all that this one does. What is stored outlives the job's coordinators: whoever has not
  /// heard how the job ended may elect another one.
  bool is_stored() const { return !store_ || (!stale_ && !writing_); }

 private:
  using Say = std::function<void(bool sure)>;
  void read_memory();
  void on_memory(const Result<membership::Entry>& entry);
  std::optional<membership::Memory> own_beginning() const;
  bool is_elsewhere(const Result<membership::Entry>& place);
  void confirm();
  void on_place(const Result<membership::Entry>& place, std::vector<Say> unsaid);
  void store_place_again();
  void check_memory();
  void write();
  void say_all(bool sure);
  void on_answer(bool answered);

  enum class State { beginning, unread, serving, ended };

  const Clock& clock_;
  const TenureOptions options_;
  const TenureEvents events_;
  State state_ = State::beginning;
  std::string memory_;          // to be written
  std::uint64_t revision_ = 0;  // of what is stored
  bool writing_ = false, stale_ = false;
  bool over_ = false;                         // the job, by what is to be written
  Nanos answered_{0};                         // when the store did last
  bool answers_ = true;                       // it did when it was asked last
  std::vector<Say> unsaid_;                   // until what they promise is stored
  std::unique_ptr<membership::Store> store_;  // last: its destructor calls nothing any more
};

}  // namespace pliant::agent
