// Numbers that a process keeps about itself, by name. Whoever shows them takes a snapshot.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <string_view>

namespace pliant {

/// Threads: any.
class Metrics {
 public:
  enum class Kind { gauge, counter };
  struct Metric {
    Kind kind = Kind::gauge;
    double value = 0;
  };

  /// What something is now. NaN: it is not known any more, and not shown.
  void set(std::string_view name, double value);
  /// How often something has happened, or how much of it; never less.
  void add(std::string_view name, double by = 1);

  std::map<std::string, Metric> snapshot() const;
  /// One line each, as Prometheus reads them: "# TYPE pliant_steps counter" and "pliant_steps 12".
  std::string text(std::string_view prefix = "pliant_") const;

 private:
  mutable std::mutex mutex_;
  std::map<std::string, Metric, std::less<>> metrics_;  // guarded by mutex_
};

}  // namespace pliant
