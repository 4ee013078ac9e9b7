// A policy in a shared object. "throws@20", "loops@20", "differs@20" or "workers=3@20": what it does after that step.
#include <pliant/policy.h>
#include <unistd.h>

#include <cstdlib>
#include <stdexcept>
#include <string>

class Scripted final : public pliant::Policy {
 public:
  explicit Scripted(const std::string& script)
      : what_(script.substr(0, script.find('@'))), step_(std::stoull(script.substr(script.find('@') + 1))) {}

  pliant::Action after_step(const pliant::StepReport& seen) override {
    ++calls_;
    if (seen.step + 1 != step_) return pliant::keep();
    bool first = std::string(std::getenv("PLIANT_WORKER")) == "0";
    if (what_ == "throws" && first) throw std::runtime_error("out of ideas");
    while (what_ == "loops" && first) usleep(1000);
    if (what_ == "differs") return pliant::resize(first ? 3 : 4);
    if (what_.starts_with("workers=")) return pliant::resize(std::stoi(what_.substr(8)));
    return pliant::keep();
  }
  std::string save() const override { return std::to_string(calls_); }
  void load(std::string_view saved) override { calls_ = std::stoull(std::string(saved)); }

 private:
  std::string what_;
  std::uint64_t step_;
  std::uint64_t calls_ = 0;
};

PLIANT_POLICY(Scripted)
