// Threads that keep a queue filled, or run any other op again and again beside the training.
#pragma once

#include <string>
#include <vector>

#include "millrace/api/client_session.h"
#include "millrace/train/coordinator.h"

namespace millrace {

struct QueueRunnerOptions {
  std::string name = "queue_runner";
  // One thread runs each of these until the coordinator stops or the queue is closed.
  std::vector<Operation> enqueue_ops = {};
  // Run when the last thread ended because its input did; may be empty.
  Operation close_op = {};
  // Run when the coordinator stops: pending enqueues are cancelled; may be empty.
  Operation cancel_op = {};
  // Codes with which a thread ends cleanly: the queue is closed, the input at its end.
  std::vector<absl::StatusCode> closed_codes = {absl::StatusCode::kOutOfRange, absl::StatusCode::kCancelled};
};

class QueueRunner {
 public:
  explicit QueueRunner(QueueRunnerOptions options) : options_(std::move(options)) {}
  const QueueRunnerOptions& options() const { return options_; }
  // The threads belong to the coordinator; the session outlives them.
  Status Start(ClientSession* session, Coordinator* coordinator) const;

 private:
  QueueRunnerOptions options_;
};

// The runners of a graph, which MonitoredSession and Supervisor start.
void AddQueueRunner(const Scope& scope, QueueRunner runner);
std::vector<QueueRunner> QueueRunners(const Scope& scope);

}  // namespace millrace
