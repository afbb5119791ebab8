// A session that is prepared, watched by hooks, and made anew when a server is lost.
//
//   auto session = MonitoredTrainingSession(scope, {.master = server->target(), .is_chief = index == 0, .checkpoint_dir = "/tmp/train",
//                                                   .hooks = {std::make_shared<StopAtStepHook>(StopAtStepOptions{.last_step = 1000})}}).value();
//   MonitoredStep step = session->MakeStep({images, labels}, {loss}, {train}).value();
//   while (!session->ShouldStop()) {
//     MR_RETURN_IF_ERROR(step(batch).status());
//   }
//   return session->Close();
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "millrace/train/hooked_run.h"
#include "millrace/train/session_creator.h"

namespace millrace {

class MonitoredSession;

// A step of a MonitoredSession with fixed feeds, fetches and targets. A cheap value, usable as long as its session; it outlives losses of sessions beneath.
class MonitoredStep {
 public:
  // `feeds` in the order that MakeStep was given; see MonitoredSession::Run.
  StatusOr<Tensors> operator()(const std::vector<Tensor>& feeds = {}) const;
  // The vector of results is used again when the caller keeps it.
  Status Run(absl::Span<const Tensor> feeds, Tensors* results) const;

 private:
  friend class MonitoredSession;
  MonitoredStep(MonitoredSession* session, std::shared_ptr<HookedSignature> signature) : session_(session), signature_(std::move(signature)) {}
  MonitoredSession* session_;
  std::shared_ptr<HookedSignature> signature_;
};

struct MonitoredSessionOptions {
  Hooks hooks = {};
  // Makes hooks that need what the creator's Begin made, such as its saver; they come before the others in each run. May be null.
  std::function<StatusOr<Hooks>()> late_hooks = nullptr;
  // What `millrace launch` is told beside the step; may be empty.
  Output loss = {};
  // How long threads have to end after the stop.
  absl::Duration stop_grace_period_secs = absl::Seconds(120);
  // How long a lost session is made anew, counted from the loss to the next run that ends well.
  absl::Duration max_wait_secs = absl::Seconds(7200);
  // Whether it is at all; otherwise the first loss ends the training with its error.
  bool recover = true;
  // How waiting is done; `pause` is by default one that RequestStop ends.
  WaitSettings wait = {};
};

// Run, MakeStep, Close and the destructor are for one thread at a time; the others for any.
//
// UNAVAILABLE and ABORTED, of a run, a hook or a thread of the coordinator, mean that a server or a peer was lost. The session is then closed and a new one made:
// a chief restores the newest checkpoint (variables that all kept their values keep them), others wait until it has; hooks see AfterCreateSession
// again, and the run is repeated. The log says why, whom it waits for, and from which step training resumes.
class MonitoredSession {
 public:
  // Calls the hooks' Begin, then the creator's, and makes the first session.
  static StatusOr<std::unique_ptr<MonitoredSession>> Create(const Scope& scope, std::unique_ptr<SessionCreator> creator, MonitoredSessionOptions options = {});
  // As Close; an error is logged.
  ~MonitoredSession();

  // A run with the hooks around it. FAILED_PRECONDITION after the stop. When a thread of the coordinator failed, its error is returned in place of what that did
  // to the run, and Close says no more of it. OUT_OF_RANGE, the end of the input, is a good end: ShouldStop is true then, and Close calls the hooks' End.
  StatusOr<Tensors> Run(const ClientSession::Feeds& feeds, const std::vector<Output>& fetches, const std::vector<Operation>& targets = {});
  StatusOr<Tensors> Run(const std::vector<Output>& fetches) { return Run(ClientSession::Feeds{}, fetches); }
  template <typename T, std::enable_if_t<std::is_same_v<T, Operation>, int> = 0>
  Status Run(const T& target) {
    return Run(ClientSession::Feeds{}, {}, {target}).status();
  }
  Status Run(const RunOptions& options, const ClientSession::Feeds& feeds, const std::vector<Output>& fetches, const std::vector<Operation>& targets,
             Tensors* results, RunMetadata* metadata);
  // Compiled when it is first run, once for each set of fetches that the hooks add.
  StatusOr<MonitoredStep> MakeStep(const std::vector<Output>& feeds, const std::vector<Output>& fetches, const std::vector<Operation>& targets = {});

  bool ShouldStop() const;
  // Ends the training after the run that is going on, and the wait for a lost session at once.
  void RequestStop();
  // The hooks' End when the training ended well, then the stop of the threads and the end of the session. The error of a thread or hook, unless a run
  // returned it. A second time does nothing.
  Status Close();

  // The session beneath, for runs that hooks shall not see; another one after each loss. Null when closed.
  ClientSession* raw_session() const;
  Coordinator* coordinator() const;
  // How often a session was made.
  int sessions_made() const;

 private:
  friend class MonitoredStep;
  struct State;
  explicit MonitoredSession(std::unique_ptr<State> state);
  Status Run(HookedSignature* signature, absl::Span<const Tensor> feeds, const RunOptions& options, RunMetadata* metadata, Tensors* results);
  const std::unique_ptr<State> state_;
};

// TensorFlow's names and defaults. Where seconds or steps are left open and the other is given, the other counts alone; a number of 0, or an infinite time,
// switches off what it is for.
struct MonitoredTrainingSessionOptions {
  // The session's target: the server of this process. Empty: no server, all in this process.
  std::string master = {};
  // The chief initialises, restores, saves and writes summaries; one task is it.
  bool is_chief = true;
  // Where checkpoints go and come from; none when empty.
  std::string checkpoint_dir = {};
  // Restored first, instead of the newest of checkpoint_dir.
  std::string checkpoint_filename_with_path = {};
  std::shared_ptr<Scaffold> scaffold = nullptr;  // one with defaults when null
  Hooks hooks = {};
  Hooks chief_only_hooks = {};
  std::optional<absl::Duration> save_checkpoint_secs = std::nullopt;  // 600 s
  std::optional<int64_t> save_checkpoint_steps = std::nullopt;
  std::optional<absl::Duration> save_summaries_secs = std::nullopt;
  std::optional<int64_t> save_summaries_steps = std::nullopt;  // 100
  // Where event files go; checkpoint_dir when empty.
  std::string summary_dir = {};
  // How often steps/s is logged and written, in steps; 0: never.
  int64_t log_step_count_steps = 100;
  // What the launcher is told; may be empty.
  Output loss = {};
  absl::Duration stop_grace_period_secs = absl::Seconds(120);
  // How long to wait for the chief, for servers and for lost sessions.
  absl::Duration max_wait_secs = absl::Seconds(7200);
  // A chief that starts finds variables that have values already: it was restarted while the parameter servers went on. True goes on from them; false does as
  // TensorFlow: restores the last checkpoint, or initialises.
  bool keep_values = false;
  // What else the sessions are made with; `target` is `master`.
  SessionOptions session = {};
  // See MonitoredSessionOptions.
  WaitSettings wait = {};
};

// Sessions for training: ChiefSessionCreator or WorkerSessionCreator with the hooks given, the ProfilerHook that `millrace launch --profile_steps` asks for, and,
// at the chief, those that save checkpoints and summaries and count steps.
StatusOr<std::unique_ptr<MonitoredSession>> MonitoredTrainingSession(const Scope& scope, MonitoredTrainingSessionOptions options = {});

}  // namespace millrace
