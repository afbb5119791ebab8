// Saves checkpoints at the beginning of a training, periodically, and at the end.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "millrace/train/checkpoint/saver.h"
#include "millrace/train/file_writer.h"
#include "millrace/train/hooks/cadence.h"
#include "millrace/train/hooks/session_run_hook.h"

namespace millrace {

class WaitRegistry;

// Called around each save. An error ends the training. `step` is the one in the checkpoint's name.
class CheckpointSaverListener {
 public:
  virtual ~CheckpointSaverListener() = default;
  // Called before there is a session; may add nodes to the graph.
  virtual Status Begin(const Scope& scope) { return absl::OkStatus(); }
  virtual Status BeforeSave(ClientSession* session, int64_t step) { return absl::OkStatus(); }
  // Called when the checkpoint is on disk, on the background thread if saving in the background. Returning true
  // requests the end of the training.
  virtual StatusOr<bool> AfterSave(ClientSession* session, int64_t step, const std::string& prefix) { return false; }
  virtual Status End(ClientSession* session, int64_t step) { return absl::OkStatus(); }
};

struct CheckpointSaverHookOptions {
  std::string checkpoint_dir = {};
  // How often to save: give one of the two.
  std::optional<int64_t> every_steps = std::nullopt;
  std::optional<absl::Duration> every = std::nullopt;
  std::string checkpoint_basename = "model.ckpt";
  // Not owned; must outlive the hook. If null, the hook creates one with `saver_options`.
  Saver* saver = nullptr;
  SaverOptions saver_options = {};
  std::vector<std::shared_ptr<CheckpointSaverListener>> listeners = {};
  // If true, the training loop waits only until the variables have been read, which does not copy them, and a thread of
  // the coordinator writes them. A save that becomes due during a write waits for that write. If false, the loop waits
  // for the whole save.
  bool background = true;
  // If true, all values of a checkpoint are of one step; tables with sparse updates have to be copied for that. False,
  // which takes effect only in the background, does not make the loop wait for the reading either: such tables are read
  // while they are updated, each row atomically, so one checkpoint may contain rows of several steps.
  bool of_one_step = true;
  // Receives the graph and an event for each checkpoint. May be null; not owned, must outlive the hook.
  FileWriter* writer = nullptr;
  // Lists a save that is late: the waits of the server in this process. May be null.
  std::shared_ptr<WaitRegistry> waits = nullptr;
  Clock* clock = Clock::Real();
};

// For the chief only. Saves when the first session is created (unless the newest checkpoint has the same step),
// whenever the interval has passed, and at the end (unless the last checkpoint has the same step). Checkpoints that an
// earlier process left in the directory count towards max_to_keep, and what its killed saves left is removed.
//
// A background save that fails with DEADLINE_EXCEEDED, because a disk does not answer, is logged, and the next one is
// tried when it is due; any other error ends the training. When no save has succeeded for two intervals, the log says
// so, once per interval, and names the save that has not ended.
class CheckpointSaverHook : public SessionRunHook {
 public:
  explicit CheckpointSaverHook(CheckpointSaverHookOptions options);
  // Must run after the coordinator of the last session has joined its threads.
  ~CheckpointSaverHook() override;

  // INVALID_ARGUMENT for invalid options, FAILED_PRECONDITION if the graph has no global step.
  Status Begin(const Scope& scope) override;
  Status AfterCreateSession(ClientSession* session, Coordinator* coordinator) override;
  StatusOr<SessionRunArgs> BeforeRun(SessionRunContext* context) override;
  Status AfterRun(SessionRunContext* context, const SessionRunValues& values) override;
  // Saves at once, unless the last checkpoint has the same step.
  StatusOr<std::string> OnNotice(ClientSession* session) override;
  Status End(ClientSession* session) override;

  // Blocks until no background write is in progress.
  void WaitForSave();
  Saver* saver() const { return options_.saver != nullptr ? options_.saver : own_saver_.get(); }

 private:
  struct Background;

  StatusOr<int64_t> Step(ClientSession* session) const;
  std::string Prefix() const;
  // A synchronous save, and the first half of one in the background.
  Status Save(ClientSession* session, int64_t step);
  Status StartSave(ClientSession* session, int64_t step);
  Status AfterSave(ClientSession* session, int64_t step, const std::string& prefix);
  // Says so if no save has succeeded for two intervals. `step` is ignored if the interval is a time.
  void SayIfLate(int64_t step);

  CheckpointSaverHookOptions options_;
  Cadence cadence_;
  Output global_step_;
  std::unique_ptr<Saver> own_saver_;
  std::shared_ptr<Background> background_;
  bool first_session_ = true;
};

}  // namespace millrace
