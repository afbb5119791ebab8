// Steps per second, for the log and for TensorBoard.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "millrace/api/variable.h"
#include "millrace/train/cadence.h"
#include "millrace/train/file_writer.h"
#include "millrace/train/session_run_hook.h"

namespace millrace {

struct StepCounterHookOptions {
  // One of the two: global steps, or a time.
  std::optional<int64_t> every_n_steps = std::nullopt;
  std::optional<absl::Duration> every_n_secs = std::nullopt;
  // Where "global_step/sec" goes as a summary: a directory, or a writer that outlives the hook; none when both are empty.
  std::string output_dir = {};
  FileWriter* writer = nullptr;
  // Told the rate; null: the log.
  std::function<void(double steps_per_sec, int64_t step)> sink = nullptr;
  Clock* clock = Clock::Real();
};

// Counts global steps, those of all workers. An error of the event file is logged once and does not end the training.
class StepCounterHook : public SessionRunHook {
 public:
  explicit StepCounterHook(StepCounterHookOptions options) : options_(std::move(options)), writer_(options_.writer) {}
  // INVALID_ARGUMENT for options that make no sense, FAILED_PRECONDITION for a graph without a global step.
  Status Begin(const Scope& scope) override;
  // The time that making a session took does not count.
  Status AfterCreateSession(ClientSession* session, Coordinator* coordinator) override;
  StatusOr<SessionRunArgs> BeforeRun(SessionRunContext* context) override { return args_; }
  Status AfterRun(SessionRunContext* context, const SessionRunValues& values) override;

 private:
  const StepCounterHookOptions options_;
  // When it was done last, and at which step; nothing in a new session.
  struct Mark {
    absl::Time time;
    int64_t step = 0;
  };
  Cadence cadence_;
  std::optional<Mark> last_;
  SessionRunArgs args_;
  std::unique_ptr<FileWriter> own_writer_;
  FileWriter* writer_ = nullptr;
};

}  // namespace millrace
