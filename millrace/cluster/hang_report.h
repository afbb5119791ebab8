// Who waits for what, when a cluster makes no step.
#pragma once

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "millrace/cluster/cluster_status.h"

namespace millrace {

struct HangReport {
  // One line, the root of it: "worker/1 at host:2223 does not answer: it is stopped, swamped or cut off; worker/0 and ps/0 wait for it". Empty when
  // nothing hangs.
  std::string cause = {};
  // One line for each wait, the oldest first: "worker/0 waits 12 s at node sync/take_grad for ..."; then one for each task that does not answer.
  std::vector<std::string> waits = {};
  // Somebody has waited for longer than the limit. Else a cause is no more than a task that does not answer, which nobody may miss.
  bool somebody_waits = false;
  // One line for each task that has been at work on a step for as long without waiting for anything: a long kernel or a slow machine, not a hang.
  std::vector<std::string> busy = {};
};

// From what the tasks said: everything that has waited for longer than `limit`, and tasks that did not answer. What waits in a session whose other
// steps go on, such as the filling of a queue that is full, is no hang. Each task's times are compared with its own clock only. Pure.
//
// The waits form a graph: a task waits for a tensor of another, which waits in the same step for a queue. The cause is where that ends, and of
// several ends the one that explains most: a task that does not answer; a task that does not do what others wait for (variables that nobody
// initialises, a step that a task does not know of); an accumulator that some workers give nothing to, who are named; data that nobody brings; room
// that nobody makes.
HangReport ExplainHang(absl::Span<const TaskView> tasks, absl::Duration limit = absl::Seconds(10));

// "worker/1" of "/job:worker/replica:0/task:1", with or without a device; other texts as they are.
std::string ShortTaskName(absl::string_view task);

}  // namespace millrace
