// Result<T>: a value or an Error. A lost peer is a value; a bug is an assertion (docs/errors.md).
#pragma once

#include <pliant/types.h>

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>

namespace pliant {

struct Error {
  Code code = Code::internal;
  std::string message;
};

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}      // NOLINT(google-explicit-constructor)
  Result(Error error) : error_(std::move(error)) {}  // NOLINT(google-explicit-constructor)
  bool ok() const { return value_.has_value(); }
  explicit operator bool() const { return ok(); }
  T& value() & { return *value_; }
  const T& value() const& { return *value_; }
  T&& value() && { return std::move(*value_); }
  const Error& error() const { return error_; }
  /// The value, or the error as an exception: for the public edge and for tests.
  T or_throw() && {
    if (!ok()) throw Failure(error_.code, error_.message);
    return std::move(*value_);
  }

 private:
  std::optional<T> value_;
  Error error_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}  // NOLINT(google-explicit-constructor)
  bool ok() const { return !error_.has_value(); }
  explicit operator bool() const { return ok(); }
  const Error& error() const { return *error_; }
  void or_throw() const {
    if (error_) throw Failure(error_->code, error_->message);
  }

 private:
  std::optional<Error> error_;
};
using Status = Result<void>;

/// What somebody wrote makes no sense.
inline Error malformed(std::string message) { return {Code::protocol, std::move(message)}; }
/// "`what`: <errno as words>", as an Error of kind io (or not_found for ENOENT).
Error errno_error(const std::string& what, int number);
Error errno_error(const std::string& what);

/// A bug, not an event: says where and stops the process.
[[noreturn]] void stop_for_bug(const char* condition, const char* file, int line);
/// What the calling thread does instead, which must not return; nullptr: as usual. For simulations, whose workers are
/// not processes.
using BugHandler = void (*)(const char* condition, const char* file, int line);
void on_bug(BugHandler handler);

#define PLIANT_ASSERT(condition)                                              \
  do {                                                                        \
    if (!(condition)) ::pliant::stop_for_bug(#condition, __FILE__, __LINE__); \
  } while (false)

#define PLIANT_TRY(expression)                                              \
  do {                                                                      \
    if (auto status_ = (expression); !status_.ok()) return status_.error(); \
  } while (false)

}  // namespace pliant
