// The state of a whole cluster, as each task tells it.
#pragma once

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "millrace/base/status.h"
#include "millrace/net/transport.h"
#include "millrace/proto/status.pb.h"

namespace millrace {

// One task and what it answered.
struct TaskView {
  std::string task = {};     // "/job:ps/replica:0/task:0"; empty when not even that is known
  std::string address = {};  // where it was asked
  // Not OK: it did not answer, or not in time. `status` is then empty but for what a peer told.
  Status answer = {};
  // It has no status service, as TensorFlow's tasks: `status` holds its name and devices only.
  bool is_tensorflow = false;
  TaskStatus status = {};
};

// Asks the task at `address` which tasks there are, then all others at once. Waits at most `timeout` for the first and as long again for
// the rest. The first entry is the task that was asked; the others follow in the order of the cluster.
std::vector<TaskView> AskCluster(net::Transport* transport, const std::string& address, absl::Duration timeout);

// Asks these tasks at once, at their addresses, and waits at most `timeout`. A task that does not answer keeps the name that it was given.
std::vector<TaskView> AskTasks(net::Transport* transport, std::vector<TaskView> tasks, absl::Duration timeout);

}  // namespace millrace
