// Checkpoints of a training, in TensorFlow's files: NAME-STEP.index, NAME-STEP.data-*, and `checkpoint`, which says which are there.
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
#include "millrace/train/checkpoint_state.h"

namespace millrace {

struct SaverOptions {
  // What is saved; all variables of the graph when both are empty. `names` says what a variable is called in the checkpoint.
  std::vector<Var> variables = {};
  std::map<std::string, Var> names = {};
  // Older ones are removed; 0 keeps all.
  int max_to_keep = 5;
  // And of those that would be removed one is kept for each such time.
  absl::Duration keep_checkpoint_every = absl::InfiniteDuration();
  // Each task writes the variables that it holds, as a shard; otherwise the first of them gets them all.
  bool sharded = false;
  std::string name = "save";
  FileSystem* files = FileSystem::Posix();
  Clock* clock = Clock::Real();
};

struct SaveOptions {
  // Ends the name: "model.ckpt-812".
  std::optional<int64_t> global_step = std::nullopt;
  std::string latest_filename = "checkpoint";
  // Writes NAME-STEP.meta with the graph too, so that TensorFlow's import_meta_graph can read it.
  bool write_meta_graph = true;
  bool write_state = true;
};

// Adds nodes to the graph when it is made: do that last, before there is a session. Save and Restore may run beside training steps; one of them at a time.
// Parts of partitioned variables are saved as slices of the whole. The tasks write and read the tensors, so that they and the program see the same
// files; the program itself writes `checkpoint` and the graph, and removes what is not kept.
class Saver {
 public:
  // INVALID_ARGUMENT, as the scope's error, when two variables would be saved under one name. A graph without variables is none; saving it is.
  explicit Saver(const Scope& scope, SaverOptions options = {});
  ~Saver();
  Saver(const Saver&) = delete;

  // Returns the checkpoint's prefix, "DIR/NAME-STEP"; makes DIR. Training goes on meanwhile; each variable is saved whole as of some moment. After an
  // error or a crash the checkpoints before it are as they were, unless the same prefix is saved again: then, at the moment of the exchange, there
  // is the old one, the new one or none of that name.
  StatusOr<std::string> Save(ClientSession* session, const std::string& prefix, const SaveOptions& options = {});

  // The same in two halves. When BeginSave returns, the variables have been read, without a copy, and training may go on and change them; what it
  // returns writes them and must be called once, from any thread, while the session is there.
  using FinishSave = absl::AnyInvocable<StatusOr<std::string>()>;
  StatusOr<FinishSave> BeginSave(ClientSession* session, const std::string& prefix, const SaveOptions& options = {});

  // Gives the variables their saved values. NOT_FOUND names the checkpoint, or the variable that it lacks; INVALID_ARGUMENT the variable and both
  // shapes or types.
  Status Restore(ClientSession* session, const std::string& prefix);

  // Oldest first.
  std::vector<std::string> last_checkpoints() const;
  // What an earlier process kept, from the `checkpoint` file of a directory, so that max_to_keep goes on. OK when there is no such file.
  Status RecoverLastCheckpoints(const std::string& directory, const std::string& latest_filename = "checkpoint");

  const SaverOptions& options() const;
  // The names of its nodes, as a MetaGraphDef has them.
  ::tensorflow::SaverDef saver_def() const;
  // The graph with its variables and this saver: what Save writes as NAME-STEP.meta.
  StatusOr<::tensorflow::MetaGraphDef> MetaGraph() const;

 private:
  struct State;
  StatusOr<std::string> PathFor(const std::string& prefix, const SaveOptions& options) const;
  // After the tasks have written: the graph, the list, and what is no longer kept.
  StatusOr<std::string> Keep(const std::string& path, const Status& saved, const SaveOptions& options);
  std::unique_ptr<State> state_;
};

// The newest checkpoint of a directory that is whole: when the `checkpoint` file names one that is missing or damaged (in its index, or its data are
// too short), the one before it is taken and a warning logged. "" when there is none. DATA_LOSS when the `checkpoint` file cannot be understood, or
// when there are checkpoints and all are damaged: starting anew would hide that.
StatusOr<std::string> LatestCheckpoint(const std::string& directory, const std::string& latest_filename = "checkpoint",
                                       FileSystem* files = FileSystem::Posix());

// The step that ends a prefix, as Save makes them: 812 of "DIR/model.ckpt-812".
std::optional<int64_t> StepOfCheckpoint(absl::string_view prefix);

// Removes a checkpoint's files, the index first: what a crash leaves is not taken for one. OK when there is none.
Status RemoveCheckpoint(const std::string& prefix, FileSystem* files = FileSystem::Posix());

}  // namespace millrace
