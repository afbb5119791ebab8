// Saves and restores checkpoints in TensorFlow's format: NAME-STEP.index, NAME-STEP.data-*, and the file `checkpoint`,
// which lists them.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"
#include "millrace/api/client_session.h"
#include "millrace/api/variable.h"
#include "millrace/base/clock.h"
#include "millrace/base/file.h"
#include "millrace/proto/meta_graph.pb.h"
#include "millrace/train/checkpoint/checkpoint_state.h"

namespace millrace {

struct SaverOptions {
  // What to save; by default all variables of the graph. The keys of `names` are the names in the checkpoint.
  std::vector<Var> variables = {};
  std::map<std::string, Var> names = {};
  // Older checkpoints are removed; 0 keeps all.
  int max_to_keep = 5;
  // Of the checkpoints that max_to_keep would remove, one per interval is kept for ever.
  absl::Duration keep_checkpoint_every = absl::InfiniteDuration();
  // If true, each task writes the variables that it holds as a shard. If false, the task of the first variable receives
  // and writes them all.
  bool sharded = false;
  std::string name = "save";
  FileSystem* files = FileSystem::Posix();
  // For the times of saves in the file `checkpoint`, from which keep_checkpoint_every counts: the list outlives the
  // process.
  WallClock* wall_clock = WallClock::Real();
};

struct SaveOptions {
  // Appended to the name: "model.ckpt-812".
  std::optional<int64_t> global_step = std::nullopt;
  std::string latest_filename = "checkpoint";
  // Also writes NAME-STEP.meta with the graph, for TensorFlow's import_meta_graph.
  bool write_meta_graph = true;
  bool write_state = true;
};

// The constructor adds nodes to the graph, so call it when the model is complete and before a session exists. Save and
// Restore may run concurrently with training steps, but not with each other. Partitioned variables are saved as slices
// of the whole. The tasks read and write the tensors, while the program itself writes `checkpoint` and the graph and
// removes old checkpoints; so all of them must see the same file system.
class Saver {
 public:
  // The scope's status becomes INVALID_ARGUMENT if two variables would be saved under one name. A graph without
  // variables is accepted here; Save and Restore then fail.
  explicit Saver(const Scope& scope, SaverOptions options = {});
  // A saver whose nodes the graph has already, as those of an imported graph; `options` say what is kept, not what is
  // saved. INVALID_ARGUMENT if the graph lacks one of them.
  static StatusOr<std::unique_ptr<Saver>> FromDef(const Scope& scope, const ::tensorflow::SaverDef& def,
                                                  SaverOptions options = {});
  ~Saver();
  Saver(const Saver&) = delete;

  // Returns the checkpoint's prefix, "DIR/NAME-STEP"; creates DIR if needed. Training may continue meanwhile: each
  // variable is saved as it was at one moment, but not all at the same moment. An error or a crash leaves earlier
  // checkpoints intact. The exception is a prefix that is saved again: after a crash while its files are replaced, that
  // prefix may be the old checkpoint, the new one, or missing.
  StatusOr<std::string> Save(ClientSession* session, const std::string& prefix, const SaveOptions& options = {});

  // Save in two halves. When BeginSave returns, the variables have been read (without a copy) and training may change
  // them. The returned function writes them; call it exactly once, from any thread, while the session is open.
  using FinishSave = absl::AnyInvocable<StatusOr<std::string>()>;
  StatusOr<FinishSave> BeginSave(ClientSession* session, const std::string& prefix, const SaveOptions& options = {});

  // Assigns the saved values to the variables. NOT_FOUND names the missing checkpoint or the variable that it lacks;
  // INVALID_ARGUMENT names a variable whose shape or type differs, with both.
  Status Restore(ClientSession* session, const std::string& prefix);

  // Oldest first.
  std::vector<std::string> last_checkpoints() const;
  // Reads the list of checkpoints that an earlier process left in a directory, so that max_to_keep counts them too. OK
  // if there is no `checkpoint` file.
  Status RecoverLastCheckpoints(const std::string& directory, const std::string& latest_filename = "checkpoint");

  const SaverOptions& options() const;
  // The names of its nodes, as stored in a MetaGraphDef.
  ::tensorflow::SaverDef saver_def() const;
  // The graph with its collections and this saver, which Save writes as NAME-STEP.meta.
  StatusOr<::tensorflow::MetaGraphDef> MetaGraph() const;

 private:
  struct State;
  explicit Saver(std::unique_ptr<State> state);
  StatusOr<std::string> PathFor(const std::string& prefix, const SaveOptions& options) const;
  // Called when the tasks have written: writes the graph and the list, and removes old checkpoints.
  StatusOr<std::string> Keep(const std::string& path, const Status& saved, const SaveOptions& options);
  std::unique_ptr<State> state_;
};

// The newest intact checkpoint of a directory. If the `checkpoint` file names one that is missing or damaged (a bad
// index, or data that are too short), a warning is logged and the one before it is used. Returns "" if there is none.
// DATA_LOSS if the `checkpoint` file cannot be parsed, or if there are checkpoints and all are damaged: starting from
// scratch would hide that.
StatusOr<std::string> LatestCheckpoint(const std::string& directory, const std::string& latest_filename = "checkpoint",
                                       FileSystem* files = FileSystem::Posix());

// The step at the end of a prefix that Save returned: 812 for "DIR/model.ckpt-812".
std::optional<int64_t> StepOfCheckpoint(absl::string_view prefix);

// Removes a checkpoint's files, the index first, so that what a crash leaves behind is not mistaken for a checkpoint.
// OK if there is none.
Status RemoveCheckpoint(const std::string& prefix, FileSystem* files = FileSystem::Posix());

}  // namespace millrace
