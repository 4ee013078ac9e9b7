// Which directories hold this user's jobs. A base is used only if it is this user's and nobody else can write to it:
// who can write there can have programs run and processes signalled in the user's name.
//
//   $PLIANT_DIR                                 if it is set, this one and no other; else, in this order:
//   $XDG_RUNTIME_DIR/pliant                     if that directory is there, and is the user's alone
//   /tmp/pliant-UID                             unless somebody else has made it
//   ${XDG_CACHE_HOME:-~/.cache}/pliant/HOST/jobs
//
// New jobs go to the first that is usable; commands look for jobs in all of them. Jobs whose agents must find files of
// the job's directory on other machines (Slurm's) go to the last, because home directories are what clusters share.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace pliant::cli {

/// From where the job's directory is to be seen.
enum class Reach { this_machine, cluster };

struct JobBase {
  std::string path;
  std::string remark{};  ///< one line for the user, if it is another one than is usual here, and why
};
/// Where a new job goes. Makes the directory (0700) if it is not there. Code::refused says why none is usable.
Result<JobBase> choose_base(Reach reach = Reach::this_machine);

/// Where jobs of this user may be: those that are there and usable, in the order above. Code::refused if $PLIANT_DIR
/// names one that is not.
Result<std::vector<std::string>> job_bases();

}  // namespace pliant::cli
