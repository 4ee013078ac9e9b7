// A call to a job's coordinator from a command of this host, wherever the coordinator is.
#pragma once

#include "apps/pliant/job_dir.h"
#include "base/clock.h"
#include "base/result.h"
#include "wire/messages.h"

namespace pliant::cli {

/// Its answer to `wish`. Tried again until `limit` while the agent is there to replace a coordinator that is gone:
/// what is wished for must do no harm if it is heard twice.
Result<wire::Answer> ask_coordinator(const Job& job, const wire::Message& wish, Nanos limit);
/// For what is not answered; tried once.
Status tell_coordinator(const Job& job, const wire::Message& message);

}  // namespace pliant::cli
