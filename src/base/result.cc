#include "base/result.h"

#include <cerrno>
#include <system_error>

namespace pliant {

namespace {
thread_local BugHandler handler = nullptr;
}  // namespace

void on_bug(BugHandler wanted) { handler = wanted; }

void stop_for_bug(const char* condition, const char* file, int line) {
  if (handler) handler(condition, file, line);
  std::fprintf(stderr, "pliant: bug: %s at %s:%d\n", condition, file, line);
  std::abort();
}

Error errno_error(const std::string& what, int number) {
  auto code = number == ENOENT ? Code::not_found : Code::io;
  return Error{code, what + ": " + std::generic_category().message(number)};
}

Error errno_error(const std::string& what) { return errno_error(what, errno); }

}  // namespace pliant
