// Sessions whose variables have their values: the chief gives them, from a checkpoint or by initializers; the others wait for it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "millrace/api/client_session.h"
#include "millrace/train/named_wait.h"
#include "millrace/train/saver.h"
#include "millrace/train/scaffold.h"

namespace millrace {

struct SessionManagerOptions {
  // See Scaffold. Without a ready op every session is ready.
  Output ready_op = {};
  Output ready_for_local_init_op = {};
  Operation local_init_op = {};
  ClientSession::Feeds local_init_feed = {};
  // Who initialises, for messages: "worker/0". Empty: the first task of job chief, master or worker of the cluster, whichever there is.
  std::string chief = {};
  WaitSettings wait = {};
};

// What a chief gives its variables their values with.
struct PrepareOptions {
  SessionOptions session = {};
  Operation init_op = {};
  ClientSession::Feeds init_feed = {};
  std::function<Status(ClientSession*)> init_fn = nullptr;
  // Restores the newest checkpoint of `checkpoint_dir`, or `checkpoint_path`, when there is one.
  std::shared_ptr<Saver> saver = nullptr;
  std::string checkpoint_dir = {};
  std::string checkpoint_path = {};
  // Waits for a checkpoint instead of initialising without one.
  bool wait_for_checkpoint = false;
  // Variables that all have values already stay as they are: the chief was lost and is back, the parameter servers were there all the time. Otherwise they are
  // restored or initialised anew, as TensorFlow does it.
  bool keep_values = false;
  absl::Duration max_wait = absl::Seconds(7200);
};

struct PreparedSession {
  std::unique_ptr<ClientSession> session = nullptr;
  // False when RecoverSession found nothing to restore.
  bool initialized = true;
  std::string restored_from = {};
  // The global step from which the training goes on, when the graph has one.
  std::optional<int64_t> step = std::nullopt;
};

// A server or a peer that is lost while a session is made is waited for, and a new session is tried, until `max_wait` is over: DEADLINE_EXCEEDED says for
// whom. Where the session's options filter no devices, only tasks that the graph names are asked: a worker waits neither for the other workers nor for
// their end. What is waited for is logged, told to the launcher, and listed in the status of the server in this process.
class SessionManager {
 public:
  SessionManager(const Scope& scope, SessionManagerOptions options) : scope_(scope), options_(std::move(options)) {}

  // For the chief. FAILED_PRECONDITION names what is not ready after all has been run.
  StatusOr<PreparedSession> PrepareSession(const PrepareOptions& options) const;
  // The same without initialisers: with neither a checkpoint nor values the result is not `initialized`.
  StatusOr<PreparedSession> RecoverSession(const PrepareOptions& options) const;
  // For the others: polls the ready op. DEADLINE_EXCEEDED names the variables and who should have initialised them.
  StatusOr<PreparedSession> WaitForSession(const SessionOptions& session, absl::Duration max_wait = absl::Seconds(7200)) const;

 private:
  class Attempt;
  StatusOr<PreparedSession> Retry(const SessionOptions& session, absl::Duration max_wait,
                                  const std::function<Status(Attempt&)>& prepare) const;
  std::string Chief(const std::string& target) const;

  const Scope scope_;
  const SessionManagerOptions options_;
};

// True for the errors of a session whose server or peers were lost, which a new session may not have: UNAVAILABLE and ABORTED.
bool IsSessionLost(const Status& status);

}  // namespace millrace
