#include "session/coordinator_link.h"

#include <chrono>

#include "net/socket.h"

namespace pliant::session {
namespace {

using namespace std::chrono_literals;
constexpr auto kReportEvery = 150ms;
constexpr auto kLookEvery = 24h;  // joining ends with an answer or with the connection, not with a time-out

}  // namespace

Result<std::unique_ptr<CoordinatorLink>> CoordinatorLink::join(const std::string& address, const wire::Join& join) {
  auto socket = net::connect_to(address);
  if (!socket.ok()) return socket.error();
  PLIANT_TRY(net::send(socket.value(), join));
  auto answer = net::receive_within(socket.value(), std::chrono::duration_cast<std::chrono::milliseconds>(kLookEvery));
  if (!answer.ok())
    return Error{answer.error().code, "the job ended before all workers had joined: " + answer.error().message};
  if (auto* refusal = std::get_if<wire::Refusal>(&answer.value().message))
    return Error{Code::refused, "the job refused this worker: " + refusal->reason};
  auto* notice = std::get_if<wire::ViewNotice>(&answer.value().message);
  if (!notice) return Error{Code::protocol, "the coordinator answered with something unexpected"};
  auto view = membership::view_from(*notice);
  if (!view.ok()) return view.error();
  return std::unique_ptr<CoordinatorLink>(new CoordinatorLink(std::move(socket).value(), std::move(view).value()));
}

CoordinatorLink::CoordinatorLink(Fd socket, membership::View view)
    : socket_(std::move(socket)), view_(std::move(view)), thread_([this] { run(); }) {}

CoordinatorLink::~CoordinatorLink() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void CoordinatorLink::report(wire::Progress progress) {
  std::lock_guard lock(mutex_);
  progress_ = std::move(progress);
}

void CoordinatorLink::complain(int rank, const std::string& reason) {
  (void)net::send(socket_, wire::Complaint{static_cast<std::uint32_t>(rank), reason});
}

void CoordinatorLink::run() {
  std::unique_lock lock(mutex_);
  for (bool last = false; !last;) {
    last = changed_.wait_for(lock, kReportEvery, [&] { return stopping_; });
    if (!progress_) continue;
    auto progress = std::move(*progress_);
    progress_.reset();
    lock.unlock();
    (void)net::send(socket_, progress);  // lost if the coordinator is slow or gone: the next one replaces it
    lock.lock();
  }
}

}  // namespace pliant::session
