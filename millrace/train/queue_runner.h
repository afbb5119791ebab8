// Threads that keep a queue filled, or run any other op again and again beside the training.
#pragma once

#include <string>
#include <vector>

#include "millrace/api/client_session.h"
#include "millrace/train/coordinator.h"

namespace millrace {

struct QueueRunnerOptions {
  std::string name = "queue_runner";
  // One thread runs each of these until the coordinator stops or the queue is closed. The same op may be there several times.
  std::vector<Operation> enqueue_ops = {};
  // Run when the last thread ended because its input did; may be empty.
  Operation close_op = {};
  // Run when the coordinator stops; may be empty. Enqueues of this runner end then in any case: this is for those who wait at the other end.
  Operation cancel_op = {};
  // Codes with which a thread ends cleanly: the queue is closed, the input at its end.
  std::vector<absl::StatusCode> closed_codes = {absl::StatusCode::kOutOfRange, absl::StatusCode::kCancelled};
};

class QueueRunner {
 public:
  explicit QueueRunner(QueueRunnerOptions options) : options_(std::move(options)) {}
  const QueueRunnerOptions& options() const { return options_; }
  // The threads belong to the coordinator and are named after the runner; the session outlives them. When the coordinator stops, their steps are
  // cancelled. A thread's error stops the coordinator; it names the runner. INVALID_ARGUMENT for a runner without enqueue ops.
  Status Start(ClientSession* session, Coordinator* coordinator) const;

 private:
  QueueRunnerOptions options_;
};

// The runners of a graph, which MonitoredSession and Supervisor start.
void AddQueueRunner(const Scope& scope, const QueueRunner& runner);
std::vector<QueueRunner> QueueRunners(const Scope& scope);
// Starts all of them.
Status StartQueueRunners(const Scope& scope, ClientSession* session, Coordinator* coordinator);

}  // namespace millrace
