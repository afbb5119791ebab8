// Creates the sessions of a MonitoredSession: the first one and those after a loss.
#pragma once

#include <memory>
#include <string>

#include "millrace/train/scaffold.h"
#include "millrace/train/session_manager.h"

namespace millrace {

struct CreateSessionOptions {
  // The previous session was lost. Variables that still have their values keep them.
  bool recovering = false;
  bool values_follow = false;  // see PrepareOptions
  WaitSettings wait = {};
};

// Used by one thread at a time.
class SessionCreator {
 public:
  virtual ~SessionCreator() = default;
  // Called once, after the hooks have added their nodes. The last chance to add nodes to the graph.
  virtual Status Begin(const Scope& scope) = 0;
  virtual StatusOr<PreparedSession> CreateSession(const CreateSessionOptions& options) = 0;
};

struct ChiefSessionCreatorOptions {
  SessionOptions session = {};
  std::shared_ptr<Scaffold> scaffold = nullptr;  // null: the defaults
  std::string checkpoint_dir = {};
  std::string checkpoint_filename_with_path = {};
  std::optional<bool> keep_values = std::nullopt;  // applies to the first session; see PrepareOptions
  absl::Duration max_wait = absl::Seconds(7200);
};
// Creates sessions whose variables it restores from a checkpoint or initialises.
std::unique_ptr<SessionCreator> ChiefSessionCreator(ChiefSessionCreatorOptions options);

struct WorkerSessionCreatorOptions {
  SessionOptions session = {};
  std::shared_ptr<Scaffold> scaffold = nullptr;
  std::string chief = {};  // see SessionManagerOptions
  absl::Duration max_wait = absl::Seconds(7200);
};
// Creates sessions after waiting until the chief has initialised the variables.
std::unique_ptr<SessionCreator> WorkerSessionCreator(WorkerSessionCreatorOptions options);

}  // namespace millrace
