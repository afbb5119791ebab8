// A session that initialises or restores its variables, calls hooks around each run, and is recreated when a server is
// lost.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "millrace/base/notice.h"
#include "millrace/train/hooks/session_run_hook.h"
#include "millrace/train/session_creator.h"

namespace millrace {

class HookedSignature;
class MonitoredSession;

// A compiled step of a MonitoredSession: fixed feeds, fetches and targets. Cheap to copy. Valid as long as its
// MonitoredSession, and remains valid when the session underneath is recreated.
class MonitoredStep {
 public:
  // `feeds` has the values in the order of MakeStep's feeds. See MonitoredSession::Run.
  StatusOr<Tensors> operator()(const std::vector<Tensor>& feeds = {}) const;
  // Reuses the memory of `results`.
  Status Run(absl::Span<const Tensor> feeds, Tensors* results) const;

 private:
  friend class MonitoredSession;
  MonitoredStep(MonitoredSession* session, std::shared_ptr<HookedSignature> signature)
      : session_(session), signature_(std::move(signature)) {}
  MonitoredSession* session_;
  std::shared_ptr<HookedSignature> signature_;
};

struct MonitoredSessionOptions {
  Hooks hooks = {};
  // Called after the creator's Begin; returns hooks that need what Begin made, such as the saver. They run before the
  // other hooks. May be null.
  std::function<StatusOr<Hooks>()> late_hooks = nullptr;
  // Reported to `millrace launch` with the step; may be empty.
  Output loss = {};
  // How long the coordinator's threads have to end after a stop is requested.
  absl::Duration stop_grace_period = absl::Seconds(120);
  // How long to try to recreate a lost session, from the loss to the next run that succeeds.
  absl::Duration max_wait = absl::Seconds(7200);
  // Whether lost sessions are recreated. If false, the first loss ends the training with its error.
  bool recover = true;
  // How to wait. The default `pause` returns early on RequestStop.
  WaitSettings wait = {};
  // Whether this is the chief, which ends a training whose workers make their steps together.
  bool is_chief = true;
  // Where notices of preemption appear; null: there are none.
  NoticeBoard* notices = NoticeBoard::OfProcess();
};

// Run, MakeStep, Close and the destructor may be called by one thread at a time; the other methods are thread-safe.
//
// UNAVAILABLE and ABORTED from a run, a hook or a thread of the coordinator mean that a server or a peer was lost. The
// session is then closed and recreated: the chief restores the newest checkpoint (unless all variables have kept their
// values), other workers wait for the chief, AfterCreateSession of the hooks is called again, and the run is repeated
// under the identity that it had (RunOptions::identity). So it counts once: what a task that has lived on had already
// done for the run is not done again, unless a restored checkpoint has undone it.
// The log says why, what it waits for, and from which step training resumes.
//
// A notice of preemption (base/notice.h) ends the training: the run in hand is the last one, OnNotice of the hooks is
// called on another thread (the chief saves), and ShouldStop becomes true. A run that a program begins after that
// returns CANCELLED, and so does a session that is still being created. The program should then end; its exit code is
// 143. A run in hand that has not ended after four fifths of the grace period is cancelled, and nothing is saved. Where
// steps wait for those of other workers (SessionRunHook::StepsTogether), that is after two fifths, because the others
// have ended; if such a run leaves no trace (CancelledStepLeavesNoTrace), the chief saves.
class MonitoredSession {
 public:
  // Calls Begin of the hooks and of the creator, then creates the first session.
  static StatusOr<std::unique_ptr<MonitoredSession>> Create(const Scope& scope, std::unique_ptr<SessionCreator> creator,
                                                            MonitoredSessionOptions options = {});
  // Calls Close and logs its error.
  ~MonitoredSession();

  // Runs a step with the hooks around it. FAILED_PRECONDITION after a stop. If a thread of the coordinator failed, Run
  // returns that error instead of its effect on the run, and Close does not return it again. OUT_OF_RANGE, the end of
  // the input, is a normal end: ShouldStop becomes true and Close calls the hooks' End.
  StatusOr<Tensors> Run(const ClientSession::Feeds& feeds, const std::vector<Output>& fetches,
                        const std::vector<Operation>& targets = {});
  StatusOr<Tensors> Run(const std::vector<Output>& fetches) { return Run(ClientSession::Feeds{}, fetches); }
  template <typename T, std::enable_if_t<std::is_same_v<T, Operation>, int> = 0>
  Status Run(const T& target) {
    return Run(ClientSession::Feeds{}, {}, {target}).status();
  }
  Status Run(const RunOptions& options, const ClientSession::Feeds& feeds, const std::vector<Output>& fetches,
             const std::vector<Operation>& targets, Tensors* results, RunMetadata* metadata);
  // The step is compiled on its first run, once for each set of fetches that the hooks add.
  StatusOr<MonitoredStep> MakeStep(const std::vector<Output>& feeds, const std::vector<Output>& fetches,
                                   const std::vector<Operation>& targets = {});

  bool ShouldStop() const;
  // Stops the training after the current run; a wait for a lost session ends immediately.
  void RequestStop();
  // Calls the hooks' End if the training ended without an error, stops the threads and closes the session. Returns the
  // error of a thread or hook, unless a run has returned it. A second call does nothing.
  Status Close();

  // The session underneath, for runs without hooks. It is a different one after each loss, and null after Close.
  ClientSession* raw_session() const;
  Coordinator* coordinator() const;
  // The number of sessions created so far.
  int sessions_made() const;

 private:
  friend class MonitoredStep;
  struct State;
  explicit MonitoredSession(std::unique_ptr<State> state);
  Status Run(HookedSignature* signature, absl::Span<const Tensor> feeds, const RunOptions& options,
             RunMetadata* metadata, Tensors* results);
  const std::unique_ptr<State> state_;
};

}  // namespace millrace
