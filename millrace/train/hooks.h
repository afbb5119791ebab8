// The hooks that trainings use most. CheckpointSaverHook, SummarySaverHook and ProfilerHook have headers of their own.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "millrace/api/variable.h"
#include "millrace/train/cadence.h"
#include "millrace/train/named_wait.h"
#include "millrace/train/progress.h"
#include "millrace/train/session_run_hook.h"

namespace millrace {

struct StopAtStepOptions {
  // One of the two: so many steps from where the training began, or up to this step, counted over all workers.
  std::optional<int64_t> num_steps = std::nullopt;
  std::optional<int64_t> last_step = std::nullopt;
};
// Asks for the stop when the global step has reached a number. Begin is INVALID_ARGUMENT unless one number is given, FAILED_PRECONDITION without a global step.
class StopAtStepHook : public SessionRunHook {
 public:
  explicit StopAtStepHook(StopAtStepOptions options) : options_(options), last_step_(options.last_step) {}
  Status Begin(const Scope& scope) override;
  Status AfterCreateSession(ClientSession* session, Coordinator* coordinator) override;
  StatusOr<SessionRunArgs> BeforeRun(SessionRunContext* context) override;
  Status AfterRun(SessionRunContext* context, const SessionRunValues& values) override;

 private:
  const StopAtStepOptions options_;
  std::optional<int64_t> last_step_;
  Var global_step_;
};

using NamedOutputs = std::vector<std::pair<std::string, Output>>;

struct LoggingTensorOptions {
  // Logged as "loss = 0.25, accuracy = 0.9 (1.2 s)"; a name that is empty is the tensor's own.
  NamedOutputs tensors = {};
  // One of the two, or neither with at_end. Runs are counted, not global steps.
  std::optional<int64_t> every_n_iter = std::nullopt;
  std::optional<absl::Duration> every_n_secs = std::nullopt;
  // Once more when the training ends.
  bool at_end = false;
  // Makes the line; null: as above.
  std::function<std::string(const std::vector<std::pair<std::string, Tensor>>&)> formatter = nullptr;
  // Where lines go; null: the log.
  std::function<void(const std::string&)> sink = nullptr;
  Clock* clock = Clock::Real();
};
// Logs the values of tensors.
class LoggingTensorHook : public SessionRunHook {
 public:
  explicit LoggingTensorHook(LoggingTensorOptions options) : options_(std::move(options)) {}
  Status Begin(const Scope& scope) override;
  StatusOr<SessionRunArgs> BeforeRun(SessionRunContext* context) override;
  Status AfterRun(SessionRunContext* context, const SessionRunValues& values) override;
  Status End(ClientSession* session) override;

 private:
  void Log(const Tensors& values);

  const LoggingTensorOptions options_;
  Cadence cadence_;
  SessionRunArgs args_;
  int64_t iteration_ = 0;
  bool due_ = false;
  std::optional<absl::Time> logged_;
};

struct NanTensorOptions {
  // False: the training stops without an error.
  bool fail_on_nan_loss = true;
};
// Looks at a loss in each run: when it is not a number the training fails with INVALID_ARGUMENT, which names it, or stops.
class NanTensorHook : public SessionRunHook {
 public:
  explicit NanTensorHook(Output loss, NanTensorOptions options = {}) : loss_(std::move(loss)), options_(options) {}
  Status Begin(const Scope& scope) override;
  StatusOr<SessionRunArgs> BeforeRun(SessionRunContext* context) override { return SessionRunArgs{.fetches = {loss_}}; }
  Status AfterRun(SessionRunContext* context, const SessionRunValues& values) override;

 private:
  const Output loss_;
  const NanTensorOptions options_;
};

// Runs ops once more when the training has ended well, and keeps what they gave.
class FinalOpsHook : public SessionRunHook {
 public:
  explicit FinalOpsHook(std::vector<Output> final_ops, ClientSession::Feeds feeds = {}) : final_ops_(std::move(final_ops)), feeds_(std::move(feeds)) {}
  Status End(ClientSession* session) override;
  // Empty until then.
  const Tensors& final_ops_values() const { return values_; }

 private:
  const std::vector<Output> final_ops_;
  const ClientSession::Feeds feeds_;
  Tensors values_;
};

struct GlobalStepWaiterOptions {
  int64_t wait_until_step = 0;
  absl::Duration max_wait = absl::InfiniteDuration();
  WaitSettings wait = {};
};
// Makes a worker begin later: its first run waits until the others have brought the global step to a number.
class GlobalStepWaiterHook : public SessionRunHook {
 public:
  explicit GlobalStepWaiterHook(GlobalStepWaiterOptions options) : options_(std::move(options)) {}
  Status Begin(const Scope& scope) override;
  StatusOr<SessionRunArgs> BeforeRun(SessionRunContext* context) override;

 private:
  const GlobalStepWaiterOptions options_;
  Var global_step_;
  bool reached_ = false;
};

// Feeds what a function gives, in each run.
class FeedFnHook : public SessionRunHook {
 public:
  explicit FeedFnHook(std::function<StatusOr<ClientSession::Feeds>()> feed_fn) : feed_fn_(std::move(feed_fn)) {}
  StatusOr<SessionRunArgs> BeforeRun(SessionRunContext* context) override;

 private:
  const std::function<StatusOr<ClientSession::Feeds>()> feed_fn_;
};

struct ProgressOptions {
  Output loss = {};  // may be empty
  Clock* clock = Clock::Real();
  // Where it is told; null: ReportProgress.
  std::function<void(const TrainingProgress&)> report = nullptr;
};
// Tells the launcher step and loss, ten times a second at most: other runs are left alone. Every MonitoredSession has one.
class ProgressHook : public SessionRunHook {
 public:
  explicit ProgressHook(ProgressOptions options) : options_(std::move(options)) {}
  Status Begin(const Scope& scope) override;
  StatusOr<SessionRunArgs> BeforeRun(SessionRunContext* context) override;
  Status AfterRun(SessionRunContext* context, const SessionRunValues& values) override;
  Status End(ClientSession* session) override;

  // The global step that was seen last.
  const std::optional<int64_t>& last_step() const { return last_step_; }
  void Saw(int64_t step) { last_step_ = step; }
  // A session begins at this step.
  void Resume(std::optional<int64_t> step);

 private:
  void Report(const TrainingProgress& progress);

  const ProgressOptions options_;
  SessionRunArgs args_;
  bool has_step_ = false;
  bool due_ = false;
  absl::Time told_ = absl::InfinitePast();
  std::optional<int64_t> last_step_;
};

}  // namespace millrace
