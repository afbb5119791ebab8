// Steps per second, for the log and for TensorBoard.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "millrace/api/variable.h"
#include "millrace/train/file_writer.h"
#include "millrace/train/hooks/cadence.h"
#include "millrace/train/hooks/session_run_hook.h"

namespace millrace {

struct StepCounterHookOptions {
  // Give one of the two: an interval in global steps, or a time.
  std::optional<int64_t> every_steps = std::nullopt;
  std::optional<absl::Duration> every = std::nullopt;
  // Where the summary "global_step/sec" is written: a directory, or a writer (not owned, must outlive the hook). If
  // both are empty, no summary is written.
  std::string output_dir = {};
  FileWriter* writer = nullptr;
  // Receives the rate. Null writes it to the log.
  std::function<void(double steps_per_sec, int64_t step)> sink = nullptr;
  Clock* clock = Clock::Real();
};

// Measures global steps per second, over all workers. An error of the event file is logged once and does not end the
// training.
class StepCounterHook : public SessionRunHook {
 public:
  explicit StepCounterHook(StepCounterHookOptions options) : options_(std::move(options)), writer_(options_.writer) {}
  // INVALID_ARGUMENT for invalid options, FAILED_PRECONDITION if the graph has no global step.
  Status Begin(const Scope& scope) override;
  // Restarts the measurement, so the time to create a session does not count.
  Status AfterCreateSession(ClientSession* session, Coordinator* coordinator) override;
  StatusOr<SessionRunArgs> BeforeRun(SessionRunContext* context) override { return args_; }
  Status AfterRun(SessionRunContext* context, const SessionRunValues& values) override;

 private:
  const StepCounterHookOptions options_;
  // The time and step of the last measurement; empty in a new session.
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
