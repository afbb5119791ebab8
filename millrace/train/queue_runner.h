// Threads that keep a queue filled, or run any other op repeatedly in the background of the training.
#pragma once

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "millrace/api/client_session.h"
#include "millrace/base/mutex.h"
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

// The identities of the runs of queue runners, by op and thread, for a program that starts them again in a new session:
// the run that was under way when the last session was lost is then repeated, and counts once. Thread-safe.
class RepeatedRuns {
 public:
  // The identity to begin with; a new attempt of the run that was last under way. Attempts count up over all runs, so
  // that what is left of an earlier session is always the earlier one.
  RunIdentity Begin(const std::string& op);
  void End(const std::string& op, const RunIdentity& run);
  // What was under way is not repeated.
  void Forget();

 private:
  struct OfOp {
    RunIdentity run = RunIdentity::OfNewClient();
    int64_t attempts = 0;
  };
  Mutex mu_;
  absl::flat_hash_map<std::string, OfOp> runs_ ABSL_GUARDED_BY(mu_);
};

class QueueRunner {
 public:
  explicit QueueRunner(QueueRunnerOptions options) : options_(std::move(options)) {}
  const QueueRunnerOptions& options() const { return options_; }
  // Starts the threads. They belong to the coordinator and are named after the runner; the session must outlive them.
  // Their steps are cancelled when the coordinator stops. An error of a thread stops the coordinator and names the
  // runner. INVALID_ARGUMENT if there are no enqueue ops. With `runs`, which must outlive the threads, the ops' runs
  // have identities, and continue where they were in an earlier session.
  Status Start(ClientSession* session, Coordinator* coordinator, RepeatedRuns* runs = nullptr) const;

 private:
  QueueRunnerOptions options_;
};

// The queue runners of a graph. MonitoredSession and Supervisor start them.
void AddQueueRunner(const Scope& scope, const QueueRunner& runner);
std::vector<QueueRunner> QueueRunners(const Scope& scope);
// Starts all of them.
Status StartQueueRunners(const Scope& scope, ClientSession* session, Coordinator* coordinator,
                         RepeatedRuns* runs = nullptr);

}  // namespace millrace
