// Threads that keep a queue filled, or run any other op repeatedly in the background of the training.
#pragma once

#include <string>
#include <vector>

#include "millrace/api/client_session.h"
#include "millrace/train/coordinator.h"

namespace millrace {

struct QueueRunnerOptions {
  std::string name = "queue_runner";
  // Each op is run by its own thread until the coordinator stops or the queue is closed. An op may be listed several
  // times.
  std::vector<Operation> enqueue_ops = {};
  // Run when the last thread has ended because its input ended; may be empty.
  Operation close_op = {};
  // Run when the coordinator stops; may be empty. The runner's own enqueues are cancelled in any case; this op is for
  // consumers that wait on the queue.
  Operation cancel_op = {};
  // Codes that end a thread without an error: the queue was closed, or the input ended.
  std::vector<absl::StatusCode> closed_codes = {absl::StatusCode::kOutOfRange, absl::StatusCode::kCancelled};
};

class QueueRunner {
 public:
  explicit QueueRunner(QueueRunnerOptions options) : options_(std::move(options)) {}
  const QueueRunnerOptions& options() const { return options_; }
  // Starts the threads. They belong to the coordinator and are named after the runner; the session must outlive them.
  // Their steps are cancelled when the coordinator stops. An error of a thread stops the coordinator and names the
  // runner. INVALID_ARGUMENT if there are no enqueue ops.
  Status Start(ClientSession* session, Coordinator* coordinator) const;

 private:
  QueueRunnerOptions options_;
};

// The queue runners of a graph. MonitoredSession and Supervisor start them.
void AddQueueRunner(const Scope& scope, const QueueRunner& runner);
std::vector<QueueRunner> QueueRunners(const Scope& scope);
// Starts all of them.
Status StartQueueRunners(const Scope& scope, ClientSession* session, Coordinator* coordinator);

}  // namespace millrace
