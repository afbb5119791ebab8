// Asks all tasks of a cluster for their status.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "millrace/base/status.h"
#include "millrace/base/tls_credentials.h"
#include "millrace/proto/status.pb.h"

namespace millrace {

namespace net {
class Transport;
}

// A task and its answer.
struct TaskView {
  std::string task = {};     // "/job:ps/replica:0/task:0"; empty if not even that is known
  std::string address = {};  // where it was asked
  // Not OK if it did not answer in time; `status` then contains only what a peer reported about it.
  Status answer = {};
  // It has no status service, like TensorFlow's tasks; `status` contains only its name and devices.
  bool is_tensorflow = false;
  TaskStatus status = {};
};

// Asks the task at `address` for the cluster, then all other tasks concurrently. Blocks for at most `timeout` for the
// first and as long again for the rest. The first entry is the task that was asked; the others follow in the order of
// the cluster.
std::vector<TaskView> AskCluster(net::Transport* transport, const std::string& address, absl::Duration timeout);
// The same over connections of its own; `tls` as in ServerOptions.
std::vector<TaskView> AskCluster(const std::string& address, absl::Duration timeout,
                                 std::shared_ptr<const TlsCredentials> tls = nullptr);

// Asks these tasks concurrently and blocks for at most `timeout`. A task that does not answer keeps the name that it
// was given.
std::vector<TaskView> AskTasks(net::Transport* transport, std::vector<TaskView> tasks, absl::Duration timeout);

}  // namespace millrace
