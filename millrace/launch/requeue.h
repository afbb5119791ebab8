// Asks the scheduler that runs this job to start it again: all that the launcher knows of requeueing.
#pragma once

#include "absl/time/time.h"
#include "millrace/base/status.h"

namespace millrace::launch {

// FAILED_PRECONDITION says why this process cannot be started again by a scheduler.
Status CanRequeue();

// Under Slurm: `scontrol requeue $SLURM_JOB_ID`, which ends what is left of the job. Blocks for `timeout` at most. The
// error has what scontrol printed.
Status Requeue(absl::Duration timeout);

}  // namespace millrace::launch
