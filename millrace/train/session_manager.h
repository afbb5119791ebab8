// Creates sessions whose variables are ready: the chief restores or initialises them, the other workers wait for the
// chief.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "millrace/api/client_session.h"
#include "millrace/train/checkpoint/saver.h"
#include "millrace/train/named_wait.h"
#include "millrace/train/scaffold.h"

namespace millrace {

struct SessionManagerOptions {
  // See Scaffold. If there is no ready_op, every session counts as ready.
  Output ready_op = {};
  Output ready_for_local_init_op = {};
  Operation local_init_op = {};
  ClientSession::Feeds local_init_feed = {};
  // The task that initialises, as named in messages: "worker/0". Default: the first task of the cluster's job chief,
  // master or worker, whichever exists.
  std::string chief = {};
  WaitSettings wait = {};
};

// How a chief initialises or restores the variables.
struct PrepareOptions {
  SessionOptions session = {};
  Operation init_op = {};
  ClientSession::Feeds init_feed = {};
  std::function<Status(ClientSession*)> init_fn = nullptr;
  // Restores `checkpoint_filename_with_path`, or else the newest checkpoint in `checkpoint_dir`, if there is one.
  std::shared_ptr<Saver> saver = nullptr;
  std::string checkpoint_dir = {};
  std::string checkpoint_filename_with_path = {};
  // If there is no checkpoint, waits for one instead of initialising.
  bool wait_for_checkpoint = false;
  // What happens if all variables already have values, because the chief was restarted while the parameter servers kept
  // running. True keeps them. False restores or initialises, as TensorFlow does. Without a value they are kept if
  // `checkpoint_dir` has a checkpoint and its step is not beyond theirs, which shows that they are of this training, or
  // if there is no checkpoint yet but `restarted` is set; otherwise another training may have left them.
  std::optional<bool> keep_values = false;
  // This task was started again within its job (see RestartsByLauncher), so the values are of this training.
  bool restarted = false;
  // Initial values will be replaced before the training begins (SessionRunHook::GivesValues): the log does not call
  // them its beginning.
  bool values_follow = false;
  absl::Duration max_wait = absl::Seconds(7200);
};

struct PreparedSession {
  std::unique_ptr<ClientSession> session = nullptr;
  // False if RecoverSession found nothing to restore.
  bool initialized = true;
  std::string restored_from = {};
  // The global step at which the training continues, if the graph has one.
  std::optional<int64_t> step = std::nullopt;
};

// If a server or a peer is lost while a session is being created, the manager waits and tries again until `max_wait`
// has passed; DEADLINE_EXCEEDED then says what it waited for. If the session's options have no device filters, only
// tasks that the graph names are contacted, so a worker does not depend on the other workers. Each wait is logged,
// reported to the launcher and listed in the status of the server in this process.
class SessionManager {
 public:
  SessionManager(const Scope& scope, SessionManagerOptions options) : scope_(scope), options_(std::move(options)) {}

  // For the chief. FAILED_PRECONDITION names what is still not ready after initialisation.
  StatusOr<PreparedSession> PrepareSession(const PrepareOptions& options) const;
  // As PrepareSession but without initialisers: if there is neither a checkpoint nor a value, `initialized` is false.
  StatusOr<PreparedSession> RecoverSession(const PrepareOptions& options) const;
  // For the other workers: polls the ready op. DEADLINE_EXCEEDED names the variables and the task that should have
  // initialised them.
  StatusOr<PreparedSession> WaitForSession(const SessionOptions& session,
                                           absl::Duration max_wait = absl::Seconds(7200)) const;

 private:
  class Attempt;
  StatusOr<PreparedSession> Retry(const SessionOptions& session, absl::Duration max_wait,
                                  const std::function<Status(Attempt&)>& prepare) const;
  std::string Chief(const std::string& target) const;

  const Scope scope_;
  const SessionManagerOptions options_;
};

// True for UNAVAILABLE and ABORTED: a server or peer of the session was lost, and a new session may succeed.
bool IsSessionLost(const Status& status);

}  // namespace millrace
