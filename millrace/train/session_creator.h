// Who makes the sessions of a MonitoredSession, the first and those after a loss.
#pragma once

#include <memory>
#include <string>

#include "millrace/train/scaffold.h"
#include "millrace/train/session_manager.h"

namespace millrace {

struct CreateSessionOptions {
  // The session before was lost: variables that still have their values keep them.
  bool recovering = false;
  WaitSettings wait = {};
};

// Used by one thread at a time.
class SessionCreator {
 public:
  virtual ~SessionCreator() = default;
  // Once, when the hooks have added their nodes: the last of the graph.
  virtual Status Begin(const Scope& scope) = 0;
  virtual StatusOr<PreparedSession> CreateSession(const CreateSessionOptions& options) = 0;
};

struct ChiefSessionCreatorOptions {
  SessionOptions session = {};
  std::shared_ptr<Scaffold> scaffold = nullptr;  // one with defaults when null
  std::string checkpoint_dir = {};
  std::string checkpoint_filename_with_path = {};
  bool keep_values = false;  // see PrepareOptions, for the first session
  absl::Duration max_wait_secs = absl::Seconds(7200);
};
// Restores or initialises.
std::unique_ptr<SessionCreator> ChiefSessionCreator(ChiefSessionCreatorOptions options);

struct WorkerSessionCreatorOptions {
  SessionOptions session = {};
  std::shared_ptr<Scaffold> scaffold = nullptr;
  std::string chief = {};  // see SessionManagerOptions
  absl::Duration max_wait_secs = absl::Seconds(7200);
};
// Waits until the chief has.
std::unique_ptr<SessionCreator> WorkerSessionCreator(WorkerSessionCreatorOptions options);

}  // namespace millrace
