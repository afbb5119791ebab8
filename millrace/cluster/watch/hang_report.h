// Explains who waits for what when a cluster makes no progress.
#pragma once

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "millrace/cluster/watch/cluster_status.h"

namespace millrace {

struct HangReport {
  // The root cause in one line: "worker/1 at host:2223 does not answer: it is stopped, swamped or cut off; worker/0 and
  // ps/0 wait for it". Empty if nothing hangs.
  std::string cause = {};
  // One line for each wait, the oldest first: "worker/0 waits 12 s at node sync/take_grad for ..."; then one for each
  // task that does not answer.
  std::vector<std::string> waits = {};
  // Whether a wait is older than the limit. If not, a cause is only a task that does not answer and that nobody may
  // need.
  bool somebody_waits = false;
  // One line for each task that has worked on a step for as long without waiting for anything: a long kernel or a slow
  // machine, not a hang.
  std::vector<std::string> busy = {};
};

// Considers all waits that are older than `limit`, and tasks that did not answer. A wait in a session whose other steps
// progress, such as an enqueue into a full queue, is not a hang. Each task's times are compared only with its own
// clock. A pure function.
//
// The waits form a graph: a task waits for a tensor of another task, which waits in the same step for a queue. The
// cause is a sink of this graph; of several sinks, the one that explains most: a task that does not answer; a task that
// does not do what others wait for (variables that nobody initialises, a step that a task does not know); an
// accumulator to which some workers, who are named, do not contribute; a queue that nobody fills; a queue that nobody
// empties.
HangReport ExplainHang(absl::Span<const TaskView> tasks, absl::Duration limit = absl::Seconds(10));

// "worker/1" for "/job:worker/replica:0/task:1", with or without a device; other texts are returned unchanged.
std::string ShortTaskName(absl::string_view task);

}  // namespace millrace
