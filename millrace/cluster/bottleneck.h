// What keeps a job from making more steps a second.
#pragma once

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "millrace/cluster/cluster_status.h"
#include "millrace/cluster/task_rates.h"

namespace millrace {

struct Bottleneck {
  enum class Kind {
    kUnknown,      // the tasks that matter tell no figures
    kNothingRuns,  // no step is made
    kOneTask,      // one task does everything
    kNoPs,         // no task only serves others
    kPsCores,      // a ps keeps nearly all of its cores busy, and workers wait
    kPsLink,       // a ps moves nearly as many bytes as can be moved
    kHostCores,    // a ps shares the cores of its host, with workers or other programs, and all of them are busy
    kWorkers,      // the ps tasks are idle most of the time
    kBalanced,     // none of these
  };
  Kind kind = Kind::kUnknown;
  // One line, in the words of status: "the cores of ps/0, 95 % busy (1.9 of 2), while 4 workers wait; add ps tasks: 2 ps for 4 workers".
  std::string line = {};
  // The ratio that it suggests; 0 : 0 where it suggests none.
  int ps = 0;
  int workers = 0;
  std::vector<TaskRate> tasks = {};
};

// From two looks at the same cluster, some time apart. Who is a ps: the tasks of job "ps"; in a cluster without that job, tasks that run parts
// of steps and drive none. A step that takes longer than the time between the looks is judged by the cores that it uses. Pure.
Bottleneck FindBottleneck(absl::Span<const TaskView> before, absl::Span<const TaskView> after, const Ceilings& ceilings);

// "ps_cores".
const char* BottleneckName(Bottleneck::Kind kind);

}  // namespace millrace
