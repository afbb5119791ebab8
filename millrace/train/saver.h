// Checkpoints of a training, in TensorFlow's files: NAME-STEP.index, NAME-STEP.data-*, and `checkpoint`, which says which are there.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "millrace/api/client_session.h"
#include "millrace/api/variable.h"
#include "millrace/base/file.h"

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
class Saver {
 public:
  explicit Saver(const Scope& scope, SaverOptions options = {});
  ~Saver();
  Saver(const Saver&) = delete;

  // Returns the checkpoint's prefix, "DIR/NAME-STEP". Training goes on meanwhile; each variable is saved whole as of some moment. After an error or a crash
  // the checkpoints before it are as they were.
  StatusOr<std::string> Save(ClientSession* session, const std::string& prefix, const SaveOptions& options = {});
  // Gives the variables their saved values. NOT_FOUND names the checkpoint, or the variable that it lacks.
  Status Restore(ClientSession* session, const std::string& prefix);

  std::vector<std::string> last_checkpoints() const;
  // What an earlier process kept, from the `checkpoint` file of a directory, so that max_to_keep goes on.
  Status RecoverLastCheckpoints(const std::string& directory, const std::string& latest_filename = "checkpoint");

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The newest checkpoint of a directory that is whole: when the `checkpoint` file names one that is missing or damaged in its index, the one before it is
// taken and a warning logged. "" when there is none.
StatusOr<std::string> LatestCheckpoint(const std::string& directory, const std::string& latest_filename = "checkpoint",
                                       FileSystem* files = FileSystem::Posix());

}  // namespace millrace
