// Asks a cloud's metadata service, again and again, whether this machine will be taken away. notice_answer.h says which
// answers mean what.
//
//   state    what comes                            to      action
//   asking   nothing yet                           pause   the shortest; failures are forgotten
//   asking   a notice                              over    on_notice
//   asking   a token is wanted (AWS)               token   PUT /latest/api/token
//   asking   ... though there is a new one         pause   a failure
//   asking   events; whose, is not known (Azure)   name    GET /metadata/instance/compute/name
//   token    a token                               asking  at once, with it; it is used until another one is wanted
//   name     a name, or that there is none         asking  at once
//   any      no answer, nonsense, a bad status     pause   a failure: pause_after() says how long
//   pause    it is over                            asking
//
// A failure is never a notice. The fifth in a row is told to on_trouble, once until something is understood again.
// Azure's first answers may take two minutes, and are failures until then.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "apps/pliant/notice_answer.h"
#include "base/result.h"
#include "net/http.h"
#include "net/loop.h"
#include "net/tcp.h"

namespace pliant::cli {

struct NoticeUrl {
  std::string host;  ///< a name or an address
  std::uint16_t port = 80;
  std::string path = "/";  ///< with what is asked, if there is a "?"
  std::string text() const;
  bool operator==(const NoticeUrl&) const = default;
};
/// "http://169.254.169.254/latest/meta-data/spot/instance-action": Code::invalid says what is wrong.
Result<NoticeUrl> parse_notice_url(const std::string& url);

struct NoticePace {
  std::chrono::milliseconds pause{1'000};           ///< between the end of a call and the next
  std::chrono::milliseconds longest_pause{30'000};  ///< while there is trouble
  std::chrono::milliseconds patience{2'000};        ///< for one call
};

/// Threads: lives on its loop's thread. The callbacks may destroy it.
class NoticeWatch {
 public:
  static constexpr int kTrouble = 5;  ///< failures in a row
  using OnNotice = std::function<void(const SpotNotice&)>;
  using OnTrouble = std::function<void(const std::string& line)>;
  using WallClock = std::function<std::chrono::system_clock::time_point()>;

  /// Asks at once. `on_notice` is called once at most, and nobody is asked after that. A host's name is resolved here,
  /// once, which may take long; if it has no address, that is told to `on_trouble`, and nobody is ever asked. Neither
  /// is called within the constructor.
  NoticeWatch(net::Loop& loop, const NoticeUrl& url, OnNotice on_notice, OnTrouble on_trouble, NoticePace pace = {},
              WallClock wall_clock = std::chrono::system_clock::now);
  ~NoticeWatch();
  NoticeWatch(const NoticeWatch&) = delete;
  NoticeWatch& operator=(const NoticeWatch&) = delete;

  /// After so many failures in a row: twice as long with each, from the one that is trouble.
  static std::chrono::milliseconds pause_after(int failures, const NoticePace& pace);

 private:
  void ask();
  void ask_for_token();
  void ask_for_name();
  void call(const net::HttpRequest& request, void (NoticeWatch::*answered)(const net::HttpAnswer&));
  void on_answer(const net::HttpAnswer& answer);
  void on_token(const net::HttpAnswer& answer);
  void on_name(const net::HttpAnswer& answer);
  void fail(const std::string& why);
  void after(std::chrono::milliseconds pause, std::function<void()> next);

  net::Loop& loop_;
  const std::string url_;
  const std::string path_;
  const OnNotice on_notice_;
  const OnTrouble on_trouble_;
  const NoticePace pace_;
  const WallClock wall_clock_;
  net::Endpoint server_;
  std::unique_ptr<net::HttpCall> call_;
  std::optional<net::Loop::Timer> timer_;
  std::string token_;                // empty: none
  bool token_is_new_ = false;        // nothing was asked with it yet
  std::optional<std::string> name_;  // as understand_notice() wants it
  int failures_ = 0;                 // in a row
};

}  // namespace pliant::cli
