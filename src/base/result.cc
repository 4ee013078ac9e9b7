#include "base/result.h"

#include <cerrno>
#include <system_error>

namespace pliant {

Error errno_error(const std::string& what, int number) {
  auto code = number == ENOENT ? Code::not_found : Code::io;
  return Error{code, what + ": " + std::generic_category().message(number)};
}

Error errno_error(const std::string& what) { return errno_error(what, errno); }

}  // namespace pliant
