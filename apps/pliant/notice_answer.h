// What a cloud's metadata service says about taking this machine away. Pure functions.
//
// Whoever answers is known by the answer, and nobody has to say which cloud this is.
//
//   whose      status    body                                                               means
//   anybody's  204, 404  any                                                                nothing
//   anybody's  200       empty, or {}                                                       nothing
//   AWS        401       any                                                                a token is wanted first
//   AWS        200       {"action": "terminate", "time": "2017-09-18T08:22:00Z"}            a notice, and when
//   AWS        200       2017-09-18T08:22:00Z (the older termination-time)                  a notice, and when
//   GCP        200       TRUE; FALSE (preempted)                                            a notice; nothing
//   GCP        200       TERMINATE_ON_HOST_MAINTENANCE (maintenance-event)                  a notice
//   GCP        200       NONE, MIGRATE_ON_HOST_MAINTENANCE                                  nothing
//   Azure      200       {"Events": [{"EventType": "Preempt", "Resources": ["worker_3"],
//                        "NotBefore": "Mon, 19 Sep 2016 18:29:47 GMT"}]}                    a notice, and when
//   Azure      200       {"Events": []}                                                     nothing
//   your own   200       {"seconds": 30}, {"action": "repair", "seconds": 30}               a notice, and when
//   your own   200       {"action": "repair"}, with a "time" like AWS's or without one      a notice
//   your own   200       {"action": "none"}; also with "" or null                           nothing
//   anybody's  others, or another body                                                      no answer
//
// Of Azure's events, Preempt and Terminate count: after the others the machine is there again. Azure tells every
// machine of a scale set about all of them, so an event counts only for those that it names; who this is has to be
// asked first. An event that names nobody is for everybody. Of several, the soonest counts.
//
// A time that is over is 0 seconds from now. One that is no time, or more than kFarthest away, is none: the notice
// counts, but for when, nobody knows.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "net/http_answer.h"

namespace pliant::cli {

struct SpotNotice {
  std::string words;              ///< what was said: one short line of ASCII
  std::optional<double> seconds;  ///< from now, if a time was named
  bool operator==(const SpotNotice&) const = default;
};

using WallTime = std::chrono::sys_seconds;
inline constexpr std::chrono::hours kFarthest{24 * 30};

struct NoticeAnswer {
  enum class Kind : std::uint8_t { nothing, notice, wants_token, wants_name };
  Kind kind = Kind::nothing;
  SpotNotice notice{};  ///< of Kind::notice
  bool operator==(const NoticeAnswer&) const = default;
};

/// `name` is this machine's, as Azure calls it; nothing: not asked for yet; empty: nobody knows, and events are for
/// everybody. Code::peer_lost for a status that is no answer, Code::protocol for a body that is none.
Result<NoticeAnswer> understand_notice(const net::HttpAnswer& answer, WallTime now,
                                       const std::optional<std::string>& name);

/// "2017-09-18T08:22:00Z" (or .5Z, or +02:00), "Mon, 19 Sep 2016 18:29:47 GMT".
std::optional<WallTime> parse_notice_time(const std::string& text);

/// Of AWS, a token to be sent along. Code::peer_lost and Code::protocol as above.
Result<std::string> understand_token(const net::HttpAnswer& answer);
/// Of Azure, this machine's name; empty if nobody knows. Code::peer_lost as above.
Result<std::string> understand_name(const net::HttpAnswer& answer);

}  // namespace pliant::cli
