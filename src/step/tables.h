// The tables of the step machine. Between two calls of a session's functions, and while one of them waits, a worker is
// in one state of each.
#pragma once

#include <array>
#include <string_view>

#include "step/table.h"

namespace pliant::step {

/// A step of this worker. What it waits for in a state is what the state is called.
struct StepTable {
  enum class State {
    between,     ///< two steps
    computing,   ///< the user's code runs, and submits reductions
    exchanging,  ///< the step is being closed: everybody's rows
    reducing,    ///< then the step's reductions
    confirming,  ///< then that all have all of it
    held,        ///< the view has ended: all of the step is here, which need not be so elsewhere
    lacking,     ///< the view has ended: something of the step is not here
    closed,      ///< all have all of it: it may be acted on
  };
  enum class Event {
    begin,
    close,
    rows_here,
    reduced,
    confirmed,
    interrupted_whole,
    interrupted_short,
    all_have_it,
    repeat,
    end,
    abandon,
  };
  using enum State;
  using enum Event;
  static constexpr std::string_view kName = "step";
  static constexpr std::array<std::string_view, 8> kStates = {"between",    "computing", "exchanging", "reducing",
                                                              "confirming", "held",      "lacking",    "closed"};
  static constexpr std::array<std::string_view, 11> kEvents = {
      "begin",       "close",  "rows_here", "reduced", "confirmed", "interrupted_whole", "interrupted_short",
      "all_have_it", "repeat", "end",       "abandon"};
  static constexpr auto kRows = std::to_array<Row<State, Event>>({
      {between, begin, computing},
      {computing, close, exchanging},
      {exchanging, rows_here, reducing},
      {reducing, reduced, confirming},
      {confirming, confirmed, closed},
      {closed, end, between},
      // The program has left its loop in the middle of the step, and begins another loop.
      {computing, abandon, between},
      {closed, abandon, between},
      // The view ends while the step is being closed.
      {exchanging, interrupted_whole, held},
      {exchanging, interrupted_short, lacking},
      {reducing, interrupted_whole, held},
      {reducing, interrupted_short, lacking},
      {confirming, interrupted_whole, held},
      // The members of the next view have told each other what they have; or there is nobody any more to tell.
      {held, all_have_it, closed},
      {held, repeat, exchanging},
      {lacking, repeat, exchanging},
  });
};

/// This worker's place among the views of its job.
struct ViewTable {
  enum class State {
    outside,   ///< in no view: before it is taken in, and when the others have gone on without it
    inside,    ///< its group stands, or its end has not been noticed
    owing,     ///< inside, and newcomers wait until this worker's step has ended: then they are given the state
    changing,  ///< the view has ended: the next one is awaited
    entering,  ///< the next one is known: its members meet, settle what was open, and give newcomers the state
    fallen,    ///< the others have gone on without it; what it is in the middle of counts for nothing
    left,      ///< in good order, as it was asked to
    over,      ///< the job is
  };
  enum class Event {
    taken_in,
    view_ended,
    same_group,
    view_decided,
    settled,
    settled_owing,
    state_given,
    left_behind,
    step_over,
    leaves,
    job_over,
  };
  using enum State;
  using enum Event;
  static constexpr std::string_view kName = "view";
  static constexpr std::array<std::string_view, 8> kStates = {"outside",  "inside", "owing", "changing",
                                                              "entering", "fallen", "left",  "over"};
  static constexpr std::array<std::string_view, 11> kEvents = {
      "taken_in",    "view_ended",  "same_group", "view_decided", "settled", "settled_owing",
      "state_given", "left_behind", "step_over",  "leaves",       "job_over"};
  static constexpr auto kRows = std::to_array<Row<State, Event>>({
      {outside, taken_in, changing},
      {outside, job_over, over},
      {inside, view_ended, changing},
      {inside, job_over, over},
      {owing, state_given, inside},
      {owing, view_ended, changing},
      {changing, same_group, inside},
      {changing, view_decided, entering},
      {changing, left_behind, fallen},
      {entering, settled, inside},
      {entering, settled_owing, owing},
      {entering, view_ended, changing},
      {fallen, step_over, outside},
      {fallen, leaves, left},
  });
};

/// A reduction, or an exchange of rows outside of a step's end.
struct ReductionTable {
  enum class State {
    running,
    held,     ///< the view has ended: the result is here, which need not be so elsewhere
    lacking,  ///< the view has ended: it is not here
    done,     ///< the result may be used; of a step's reduction: once the step is closed
  };
  enum class Event { completed, interrupted_whole, interrupted_short, all_have_it, repeat };
  using enum State;
  using enum Event;
  static constexpr std::string_view kName = "reduction";
  static constexpr std::array<std::string_view, 4> kStates = {"running", "held", "lacking", "done"};
  static constexpr std::array<std::string_view, 5> kEvents = {"completed", "interrupted_whole", "interrupted_short",
                                                              "all_have_it", "repeat"};
  static constexpr auto kRows = std::to_array<Row<State, Event>>({
      {running, completed, done},
      {running, interrupted_whole, held},
      {running, interrupted_short, lacking},
      {done, interrupted_whole, held},
      {held, all_have_it, done},
      {held, repeat, running},
      {lacking, repeat, running},
  });
};

/// The job's state in this worker: tensors, step number, ledger, all of it.
struct ReplicaTable {
  enum class State {
    blank,  ///< it has none of the job's
    whole,  ///< it has all of it, as of its step
  };
  enum class Event { given, restored, forfeited };
  using enum State;
  using enum Event;
  static constexpr std::string_view kName = "replica";
  static constexpr std::array<std::string_view, 2> kStates = {"blank", "whole"};
  static constexpr std::array<std::string_view, 3> kEvents = {"given", "restored", "forfeited"};
  static constexpr auto kRows = std::to_array<Row<State, Event>>({
      {blank, given, whole},
      {blank, restored, whole},
      {blank, forfeited, blank},
      {whole, forfeited, blank},
  });
};

/// The program's loops over steps, one after the other.
struct LoopTable {
  enum class State { none, running, ended };
  enum class Event { start, end };
  using enum State;
  using enum Event;
  static constexpr std::string_view kName = "loop";
  static constexpr std::array<std::string_view, 3> kStates = {"none", "running", "ended"};
  static constexpr std::array<std::string_view, 2> kEvents = {"start", "end"};
  static constexpr auto kRows = std::to_array<Row<State, Event>>({
      {none, start, running},
      {running, end, ended},
      {ended, start, running},
      {running, start, running},  // it was left by break
  });
};

}  // namespace pliant::step
