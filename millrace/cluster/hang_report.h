// Who waits for what, when a cluster makes no step.
#pragma once

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "millrace/cluster/cluster_status.h"

namespace millrace {

struct HangReport {
  // One line, the root of it: "worker/1 does not answer (stopped?); worker/0 and ps/0 wait for it". Empty when nothing hangs.
  std::string cause = {};
  // One line for each wait, the oldest first: "worker/0 waits 12 s at node sync/take_grad for ...".
  std::vector<std::string> waits = {};
};

// From what the tasks said: everything that has waited for longer than `limit`, and tasks that did not answer. Pure.
HangReport ExplainHang(absl::Span<const TaskView> tasks, absl::Duration limit = absl::Seconds(10));

}  // namespace millrace
