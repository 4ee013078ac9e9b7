#include "apps/pliant/job_base.h"

#include <fmt/format.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "base/own_files.h"
#include "base/system.h"

namespace pliant::cli {
namespace {

namespace fs = std::filesystem;

/// A refusal that ends a command says what to do.
Error with_advice(const Error& error) {
  return {error.code, error.message + "; set PLIANT_DIR to a directory that is yours alone"};
}

std::string normal(const std::string& path) {
  std::error_code ignored;
  auto text = fs::absolute(path, ignored).lexically_normal().string();
  if (text.size() > 1 && text.ends_with('/')) text.pop_back();
  return text;
}

/// Files of a base are also reached by its path, so nobody may put another directory there. Where all may write, the
/// sticky bit sees to that.
Status check_parent(const std::string& base) {
  struct stat seen {};
  auto parent = fs::path(base).parent_path().string();
  if (stat(parent.c_str(), &seen) != 0) return errno_error(parent);
  if (!(seen.st_mode & S_IWOTH) || (seen.st_mode & S_ISVTX)) return {};
  return Error{Code::refused,
               fmt::format("all users can replace what is in {}: 'chmod +t {}' prevents it", parent, parent)};
}

/// Code::not_found if there is none.
Status check_base(const std::string& base) {
  auto opened = OwnDirectory::open(base, Links::own);
  return opened.ok() ? check_parent(base) : Status(opened.error());
}

Status make_base(const std::string& base) {
  if (auto there = check_base(base); there.ok() || there.error().code != Code::not_found) return there;
  PLIANT_TRY(make_directories(base));
  return check_base(base);
}

/// Code::not_found if there is no such directory; else it is the user's alone, or refused.
Status check_runtime_dir(const std::string& path) {
  auto opened = OwnDirectory::open(path, Links::own);
  return opened.ok() ? Status() : Status(opened.error());
}

std::string temporary_base() { return fmt::format("/tmp/pliant-{}", geteuid()); }

Result<std::string> home_base() {
  auto cache = env("XDG_CACHE_HOME");
  if (!cache) {
    auto home = env("HOME");
    if (const auto* user = home ? nullptr : getpwuid(geteuid())) home = user->pw_dir;
    if (!home) return Error{Code::not_found, "HOME is not set"};
    cache = *home + "/.cache";
  }
  // A home directory may be shared by machines, and a job's processes are only looked for on their own.
  return normal(fmt::format("{}/pliant/{}/jobs", *cache, host_name()));
}

/// One that is private, or why none is; what was passed over is remembered for the user.
class Choice {
 public:
  bool take(const std::string& base) {
    auto made = make_base(base);
    if (made.ok())
      base_.path = base;
    else
      pass_over(made.error());
    return made.ok();
  }
  void pass_over(const Error& why) {
    if (why_.empty()) why_ = why.message;
  }
  JobBase chosen() const {
    auto remark = why_.empty() ? "" : fmt::format("{}; jobs are kept in {}", why_, base_.path);
    return {base_.path, remark};
  }
  Error failure() const { return with_advice({Code::refused, why_}); }

 private:
  JobBase base_;
  std::string why_;
};

}  // namespace

Result<JobBase> choose_base(Reach reach) {
  if (auto named = env("PLIANT_DIR")) {
    auto base = normal(*named);
    auto made = make_base(base);
    if (!made.ok()) return with_advice(made.error());
    return JobBase{base};
  }
  Choice choice;
  if (reach == Reach::this_machine) {
    if (auto runtime = env("XDG_RUNTIME_DIR")) {
      auto usable = check_runtime_dir(normal(*runtime));
      if (usable.ok() && choice.take(normal(*runtime + "/pliant"))) return choice.chosen();
      if (!usable.ok() && usable.error().code != Code::not_found) choice.pass_over(usable.error());
    }
    if (choice.take(temporary_base())) return choice.chosen();
  }
  auto home = home_base();
  if (home.ok() && choice.take(home.value())) return choice.chosen();
  if (!home.ok()) choice.pass_over(home.error());
  return choice.failure();
}

Result<std::vector<std::string>> job_bases() {
  if (auto named = env("PLIANT_DIR")) {
    auto base = normal(*named);
    auto usable = check_base(base);
    if (usable.ok()) return std::vector{base};
    if (usable.error().code == Code::not_found) return std::vector<std::string>();
    return with_advice(usable.error());
  }
  std::vector<std::string> candidates;
  if (auto runtime = env("XDG_RUNTIME_DIR")) candidates.push_back(normal(*runtime + "/pliant"));
  // A session may lack that variable, of which this is the usual value.
  candidates.push_back(fmt::format("/run/user/{}/pliant", geteuid()));
  candidates.push_back(temporary_base());
  if (auto home = home_base(); home.ok()) candidates.push_back(home.value());
  std::vector<std::string> bases;
  for (const auto& base : candidates)
    if (std::find(bases.begin(), bases.end(), base) == bases.end() && check_base(base).ok()) bases.push_back(base);
  return bases;
}

}  // namespace pliant::cli
