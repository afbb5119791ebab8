// The basic hooks. CheckpointSaverHook, SummarySaverHook, StepCounterHook and ProfilerHook have headers of their own.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "millrace/api/variable.h"
#include "millrace/train/hooks/cadence.h"
#include "millrace/train/hooks/session_run_hook.h"
#include "millrace/train/named_wait.h"
#include "millrace/train/progress.h"

namespace millrace {

struct StopAtStepOptions {
  // Give one of the two: a number of steps from where the training began, or the global step (of all workers) to stop
  // at.
  std::optional<int64_t> num_steps = std::nullopt;
  std::optional<int64_t> last_step = std::nullopt;
};
// Requests a stop when the global step has reached a number. Begin returns INVALID_ARGUMENT unless exactly one number
// is given, FAILED_PRECONDITION if the graph has no global step.
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
  // Logged as "loss = 0.25, accuracy = 0.9 (1.2 s)". An empty name stands for the tensor's own name.
  NamedOutputs tensors = {};
  // Give one of the two, or neither if at_end is set. `every_runs` counts this worker's runs, not global steps.
  std::optional<int64_t> every_runs = std::nullopt;
  std::optional<absl::Duration> every = std::nullopt;
  // Log once more when the training ends.
  bool at_end = false;
  // Formats the line. Null formats it as above.
  std::function<std::string(const std::vector<std::pair<std::string, Tensor>>&)> formatter = nullptr;
  // Receives the lines. Null writes them to the log.
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
  // If false, the training stops without an error.
  bool fail_on_nan_loss = true;
};
// Checks a loss in each run. If it is NaN, the training fails with INVALID_ARGUMENT, which names the tensor, or stops.
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

// Runs ops once when the training has ended without an error, and keeps their results.
class FinalOpsHook : public SessionRunHook {
 public:
  explicit FinalOpsHook(std::vector<Output> final_ops, ClientSession::Feeds feeds = {})
      : final_ops_(std::move(final_ops)), feeds_(std::move(feeds)) {}
  Status End(ClientSession* session) override;
  // Empty until the end of the training.
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
// Delays a worker's first run until the global step, advanced by the other workers, has reached a number.
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

// Calls a function before each run and feeds what it returns.
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
  // Receives the progress. Null calls ReportProgress.
  std::function<void(const TrainingProgress&)> report = nullptr;
};
// Reports step and loss to the launcher at most ten times a second; it adds nothing to the runs in between. Every
// MonitoredSession has one.
class ProgressHook : public SessionRunHook {
 public:
  explicit ProgressHook(ProgressOptions options) : options_(std::move(options)) {}
  Status Begin(const Scope& scope) override;
  StatusOr<SessionRunArgs> BeforeRun(SessionRunContext* context) override;
  Status AfterRun(SessionRunContext* context, const SessionRunValues& values) override;
  Status End(ClientSession* session) override;

  // The last known global step.
  const std::optional<int64_t>& last_step() const { return last_step_; }
  void Saw(int64_t step) { last_step_ = step; }
  // Called when a session starts, with its global step.
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
