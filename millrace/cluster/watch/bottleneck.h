// Finds what limits the steps per second of a job.
#pragma once

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "millrace/cluster/watch/cluster_status.h"
#include "millrace/cluster/watch/task_rates.h"

namespace millrace {

struct Bottleneck {
  enum class Kind {
    kUnknown,      // the relevant tasks report no figures
    kNothingRuns,  // no steps are run
    kOneTask,      // one task does everything
    kNoPs,         // no task is a ps
    kPsCores,      // a ps uses nearly all of its cores, and workers wait
    kPsLink,       // a ps uses nearly all of the available bandwidth
    kHostCores,    // a ps shares the cores of its host, with workers or other programs, and all of them are busy
    kWorkers,      // the ps tasks are idle most of the time
    kBalanced,     // none of these
  };
  Kind kind = Kind::kUnknown;
  // One line for `millrace status`: "the cores of ps/0, 95 % busy (1.9 of 2), while 4 workers wait; add ps tasks: 2 ps
  // for 4 workers".
  std::string line = {};
  // The suggested ratio of ps to workers; 0 and 0 if there is none.
  int ps = 0;
  int workers = 0;
  std::vector<TaskRate> tasks = {};
};

// Compares two snapshots of the same cluster, some time apart. The ps are the tasks of job "ps" or, without such a job,
// the tasks that run parts of steps but drive none. A step that takes longer than the time between the snapshots is
// judged by the cores that it uses. A pure function.
Bottleneck FindBottleneck(absl::Span<const TaskView> before, absl::Span<const TaskView> after,
                          const Ceilings& ceilings);

// "ps_cores".
const char* BottleneckName(Bottleneck::Kind kind);

}  // namespace millrace
