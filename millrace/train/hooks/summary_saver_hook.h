// Writes the graph's summaries periodically.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "millrace/train/file_writer.h"
#include "millrace/train/hooks/cadence.h"
#include "millrace/train/hooks/session_run_hook.h"
#include "millrace/train/summary.h"

namespace millrace {

struct SummarySaverHookOptions {
  // How often: give one of the two.
  std::optional<int64_t> every_steps = std::nullopt;
  std::optional<absl::Duration> every = std::nullopt;
  // Where to write: a directory, or a writer (not owned, must outlive the hook).
  std::string output_dir = {};
  FileWriter* writer = nullptr;
  // The summary to write; defaults to all summaries of the graph.
  Output summary_op = {};
  Clock* clock = Clock::Real();
};

// Fetches the summaries with the first run and then whenever the interval has passed. An error of the event file is
// logged once and does not end the training.
class SummarySaverHook : public SessionRunHook {
 public:
  explicit SummarySaverHook(SummarySaverHookOptions options) : options_(std::move(options)) {}

  // INVALID_ARGUMENT for invalid options, FAILED_PRECONDITION if the graph has no global step.
  Status Begin(const Scope& scope) override;
  Status AfterCreateSession(ClientSession* session, Coordinator* coordinator) override;
  StatusOr<SessionRunArgs> BeforeRun(SessionRunContext* context) override;
  Status AfterRun(SessionRunContext* context, const SessionRunValues& values) override;
  Status End(ClientSession* session) override;

 private:
  FileWriter* writer() const { return options_.writer != nullptr ? options_.writer : own_writer_.get(); }
  void Report(const Status& status);

  SummarySaverHookOptions options_;
  Cadence cadence_;
  Output summary_;
  Output global_step_;
  std::unique_ptr<FileWriter> own_writer_;
  int64_t step_ = 0;
  bool asked_ = false;
  bool reported_ = false;
};

}  // namespace millrace
