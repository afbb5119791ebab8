// Saves checkpoints now and then, and at the beginning and the end of a training.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "millrace/train/cadence.h"
#include "millrace/train/file_writer.h"
#include "millrace/train/saver.h"
#include "millrace/train/session_run_hook.h"

namespace millrace {

// Told about each checkpoint. An error ends the training. Steps are those of the checkpoint's name.
class CheckpointSaverListener {
 public:
  virtual ~CheckpointSaverListener() = default;
  // Before there is a session: may add nodes.
  virtual Status Begin(const Scope& scope) { return absl::OkStatus(); }
  virtual Status BeforeSave(ClientSession* session, int64_t step) { return absl::OkStatus(); }
  // When it is on the disk; on the saving thread when saving in the background. True asks for the end of the training.
  virtual StatusOr<bool> AfterSave(ClientSession* session, int64_t step, const std::string& prefix) { return false; }
  virtual Status End(ClientSession* session, int64_t step) { return absl::OkStatus(); }
};

struct CheckpointSaverHookOptions {
  std::string checkpoint_dir = {};
  // One of the two.
  std::optional<int64_t> save_steps = std::nullopt;
  std::optional<absl::Duration> save_every = std::nullopt;
  std::string checkpoint_basename = "model.ckpt";
  // What saves; outlives the hook. Null: one that is made with `saver_options`.
  Saver* saver = nullptr;
  SaverOptions saver_options = {};
  std::vector<std::shared_ptr<CheckpointSaverListener>> listeners = {};
  // The training loop waits until the variables are read, which takes no copy, and a thread of the coordinator writes them. A save that is due while
  // one is still being written waits for that. False: the loop waits for all of it.
  bool background = true;
  // In the background: false lets the loop not even wait for the reading. Tables that are updated by rows, which must be copied to be read at once, are then
  // read while they are written, each row whole; so one checkpoint may have rows of several steps.
  bool of_one_step = true;
  // Gets the graph and a note of each checkpoint; may be null, outlives the hook.
  FileWriter* writer = nullptr;
  Clock* clock = Clock::Real();
};

// For the chief only. The first session's variables are saved when it is created, unless the newest checkpoint has that step already; then whenever it is
// due; and at the end, unless the last one is of that step. What an earlier process kept in the directory counts for max_to_keep.
class CheckpointSaverHook : public SessionRunHook {
 public:
  explicit CheckpointSaverHook(CheckpointSaverHookOptions options);
  // After the coordinator of the last session has joined its threads.
  ~CheckpointSaverHook() override;

  // INVALID_ARGUMENT for options that make no sense, FAILED_PRECONDITION for a graph without a global step.
  Status Begin(const Scope& scope) override;
  Status AfterCreateSession(ClientSession* session, Coordinator* coordinator) override;
  StatusOr<SessionRunArgs> BeforeRun(SessionRunContext* context) override;
  Status AfterRun(SessionRunContext* context, const SessionRunValues& values) override;
  Status End(ClientSession* session) override;

  // Until nothing is being written in the background.
  void WaitForSave();
  Saver* saver() const { return options_.saver != nullptr ? options_.saver : own_saver_.get(); }

 private:
  struct Background;

  StatusOr<int64_t> Step(ClientSession* session) const;
  std::string Prefix() const;
  // All of it at once, and in two halves.
  Status Save(ClientSession* session, int64_t step);
  Status StartSave(ClientSession* session, int64_t step);
  Status AfterSave(ClientSession* session, int64_t step, const std::string& prefix);

  CheckpointSaverHookOptions options_;
  Cadence cadence_;
  Output global_step_;
  std::unique_ptr<Saver> own_saver_;
  std::shared_ptr<Background> background_;
  bool first_session_ = true;
  std::optional<int64_t> saved_step_;
};

}  // namespace millrace
