// Writes the graph's summaries now and then.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "millrace/train/cadence.h"
#include "millrace/train/file_writer.h"
#include "millrace/train/session_run_hook.h"
#include "millrace/train/summary.h"

namespace millrace {

struct SummarySaverHookOptions {
  // One of the two.
  std::optional<int64_t> save_steps = std::nullopt;
  std::optional<absl::Duration> save_every = std::nullopt;
  // Where to: a directory, or a writer that outlives the hook.
  std::string directory = {};
  FileWriter* writer = nullptr;
  // What to write; all summaries of the graph when empty.
  Output summary = {};
  Clock* clock = Clock::Real();
};

// Fetches the summaries with the runs that are due, and with the first one. An error of the event file is logged once and does not end the
// training.
class SummarySaverHook : public SessionRunHook {
 public:
  explicit SummarySaverHook(SummarySaverHookOptions options) : options_(std::move(options)) {}

  // INVALID_ARGUMENT for options that make no sense, FAILED_PRECONDITION for a graph without a global step.
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
