// A MonitoredSession with the standard hooks of a training: checkpoints, summaries, step counting, profiling.
//
//   auto stop = std::make_shared<StopAtStepHook>(StopAtStepOptions{.last_step = 1000});
//   auto session = MonitoredTrainingSession(scope, {.master = server->target(),
//                                                   .is_chief = index == 0,
//                                                   .checkpoint_dir = "/tmp/train",
//                                                   .hooks = {stop}}).value();
//   MonitoredStep step = session->MakeStep({images, labels}, {loss}, {train}).value();
//   while (!session->ShouldStop()) {
//     MR_RETURN_IF_ERROR(step(batch).status());
//   }
//   return session->Close();
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "millrace/train/hooks/checkpoint_saver_hook.h"
#include "millrace/train/monitored_session.h"
#include "millrace/train/scaffold.h"

namespace millrace {

// TensorFlow's options and defaults. An interval is given in time (`..._every`) or in steps (`..._every_steps`), not
// both; if neither is given, the default in the comment applies. 0 steps, a zero time or an infinite time switches the
// feature off.
struct MonitoredTrainingSessionOptions {
  // The session's target, usually the server in this process. If empty, the graph runs in this process without a
  // server.
  std::string master = {};
  // The chief initialises, restores, saves and writes summaries. Exactly one worker is the chief.
  bool is_chief = true;
  // Where checkpoints are saved and restored. If empty, there are none.
  std::string checkpoint_dir = {};
  // If set, the first session restores this checkpoint instead of the newest in checkpoint_dir.
  std::string checkpoint_filename_with_path = {};
  std::shared_ptr<Scaffold> scaffold = nullptr;  // null: the defaults
  Hooks hooks = {};
  Hooks chief_only_hooks = {};
  std::optional<absl::Duration> save_checkpoint_every = std::nullopt;  // default: 600 s
  std::optional<int64_t> save_checkpoint_every_steps = std::nullopt;
  // See CheckpointSaverHookOptions.
  std::vector<std::shared_ptr<CheckpointSaverListener>> saving_listeners = {};
  bool save_in_background = true;
  std::optional<absl::Duration> save_summaries_every = std::nullopt;
  std::optional<int64_t> save_summaries_every_steps = std::nullopt;  // default: 100
  // Where event files are written; defaults to checkpoint_dir.
  std::string summary_dir = {};
  // How often steps/s is logged and written as a summary; 0 means never.
  int64_t log_step_count_every_steps = 100;
  // Reported to `millrace launch` with the step; may be empty.
  Output loss = {};
  absl::Duration stop_grace_period = absl::Seconds(120);
  // How long to wait for the chief, for servers and for the recovery of lost sessions.
  absl::Duration max_wait = absl::Seconds(7200);
  // What a starting chief does if all variables already have values, because it was restarted while the parameter
  // servers kept running. True continues with those values. False does as TensorFlow does: restore the last checkpoint,
  // or initialise. By default it continues with them if checkpoint_dir has a checkpoint and they are as new or newer.
  std::optional<bool> keep_values = std::nullopt;
  // Other options of the sessions. `target` is set from `master`.
  SessionOptions session = {};
  // See MonitoredSessionOptions.
  bool recover = true;
  WaitSettings wait = {};
  NoticeBoard* notices = NoticeBoard::OfProcess();
};

// Creates a MonitoredSession with a ChiefSessionCreator or WorkerSessionCreator, the given hooks and the ProfilerHook
// that `millrace launch --profile_steps` asks for. The chief also gets the hooks that save checkpoints, save summaries
// and count steps.
StatusOr<std::unique_ptr<MonitoredSession>> MonitoredTrainingSession(const Scope& scope,
                                                                     MonitoredTrainingSessionOptions options = {});

}  // namespace millrace
