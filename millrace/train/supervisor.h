// TensorFlow's older way to run a training: one object that prepares the session and runs services (checkpoints,
// summaries) in the background, while the program writes its own training loop.
//
//   auto supervisor = Supervisor::Create(scope, {.is_chief = index == 0, .logdir = "/tmp/train"}).value();
//   ManagedSession managed = supervisor->Managed({.target = server->target()}).value();
//   while (!supervisor->ShouldStop()) {
//     if (Status status = managed->Run(train); !status.ok()) return managed.Close(status);
//   }
//   return managed.Close();
//
// A notice of preemption (base/notice.h) makes ShouldStop true; the chief then saves in Stop. A step that waits for
// other workers which have ended is not cancelled.
//
// Prefer MonitoredTrainingSession, which recreates lost sessions, cancels such steps and calls hooks around every run.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "millrace/base/notice.h"
#include "millrace/train/coordinator.h"
#include "millrace/train/file_writer.h"
#include "millrace/train/queue_runner.h"
#include "millrace/train/scaffold.h"
#include "millrace/train/session_manager.h"

namespace millrace {

// TensorFlow's options and defaults.
struct SupervisorOptions {
  // The chief initialises, restores, saves and writes summaries. Exactly one worker is the chief.
  bool is_chief = true;
  // See Scaffold, which also has the defaults.
  Operation init_op = {};
  ClientSession::Feeds init_feed = {};
  std::function<Status(ClientSession*)> init_fn = nullptr;
  Output ready_op = {};
  Output ready_for_local_init_op = {};
  Operation local_init_op = {};
  Output summary_op = {};
  std::shared_ptr<Saver> saver = nullptr;
  // Defaults to the graph's global step, if it has one.
  std::optional<Var> global_step = std::nullopt;
  // Where checkpoints and event files are written. If empty, there are none.
  std::string logdir = {};
  std::string checkpoint_basename = "model.ckpt";
  // Zero or infinite means never.
  absl::Duration save_summaries_every = absl::Seconds(120);
  absl::Duration save_checkpoint_every = absl::Seconds(600);
  absl::Duration stop_grace_period = absl::Seconds(120);
  absl::Duration max_wait = absl::Seconds(7200);
  // How a worker polls for the chief.
  WaitSettings wait = {.max_poll_interval = absl::Seconds(30)};
  // Where notices of preemption appear; null: there are none.
  NoticeBoard* notices = NoticeBoard::OfProcess();
};

class ManagedSession;

// Thread-safe except for Create, Managed and Stop. Create adds nodes to the graph, so call it when the model is
// complete and before a session exists.
class Supervisor {
 public:
  // INVALID_ARGUMENT for invalid options; the scope's error if building the graph failed.
  static StatusOr<std::unique_ptr<Supervisor>> Create(const Scope& scope, SupervisorOptions options = {});
  // Calls Stop and logs its error.
  ~Supervisor();

  // At the chief, restores or initialises the variables and starts the standard services; other workers wait for the
  // chief. Starts the graph's queue runners. The caller owns the session and must keep it until after Stop. It is not
  // recreated when it is lost.
  StatusOr<std::unique_ptr<ClientSession>> PrepareOrWaitForSession(const SessionOptions& session = {},
                                                                   bool start_standard_services = true);
  // As PrepareOrWaitForSession, but the result calls Stop before it closes the session.
  StatusOr<ManagedSession> Managed(const SessionOptions& session = {}, bool start_standard_services = true);

  // Starts the chief's background services: checkpoints at the interval save_checkpoint_every; summaries and
  // "global_step/sec" at the interval save_summaries_every. FAILED_PRECONDITION if this is not the chief or there is no
  // logdir.
  Status StartStandardServices(ClientSession* session);
  Status StartQueueRunners(ClientSession* session);
  // Calls `body` every `period` on a thread of its own until the stop.
  Status Loop(std::string name, absl::Duration period, absl::AnyInvocable<Status()> body);
  // Writes the result of a summary op, at the current global step unless one is given. FAILED_PRECONDITION if there is
  // no writer, because this is not the chief or there is no logdir.
  Status SummaryComputed(ClientSession* session, const Tensor& summary,
                         std::optional<int64_t> global_step = std::nullopt);

  bool ShouldStop() const { return coordinator_.ShouldStop(); }
  void RequestStop(Status why = absl::OkStatus()) { coordinator_.RequestStop(std::move(why)); }
  bool WaitForStop(absl::Duration timeout = absl::InfiniteDuration()) const {
    return coordinator_.WaitForStop(timeout);
  }
  // Stops the threads, waiting at most stop_grace_period, and flushes the event file. After a notice the chief saves
  // the model. Returns the first error of a thread, or else of that save. A second call does nothing.
  Status Stop();

  Coordinator* coord() { return &coordinator_; }
  FileWriter* summary_writer() { return writer_.get(); }
  Saver* saver() { return scaffold_.saver.get(); }
  // "LOGDIR/model.ckpt"
  std::string save_path() const;

 private:
  Supervisor(const Scope& scope, SupervisorOptions options);
  Status Begin();
  // Begins to react to notices. CANCELLED if there has been one.
  Status Subscribe();
  WaitSettings Waiting();
  Status SaveForNotice(const Notice& notice, const Status& of_threads);
  Status SaveModel(ClientSession* session);
  Status SaveSummaries(ClientSession* session);
  StatusOr<int64_t> Step(ClientSession* session) const;

  const Scope scope_;
  const SupervisorOptions options_;
  Scaffold scaffold_;
  std::optional<Var> global_step_;
  std::unique_ptr<FileWriter> writer_;
  bool stopped_ = false;
  ClientSession* session_ = nullptr;  // the newest that was prepared, until Stop
  Coordinator coordinator_;           // its threads use the others
  NoticeSubscription subscription_;   // last: the reaction uses the coordinator
};

// A session of a Supervisor, which must outlive it; closing it stops the supervisor.
class ManagedSession {
 public:
  ManagedSession(ManagedSession&&) = default;
  // Calls Close and logs its error.
  ~ManagedSession();

  ClientSession* get() const { return session_.get(); }
  ClientSession* operator->() const { return session_.get(); }
  ClientSession& operator*() const { return *session_; }

  // Ends the training: stops the supervisor, then closes the session. `of_loop` is the error of the training loop, if
  // it had one. Returns the first error of a thread, or else `of_loop`, once. OUT_OF_RANGE, the end of the input, is
  // not an error.
  Status Close(Status of_loop = absl::OkStatus());

 private:
  friend class Supervisor;
  ManagedSession(Supervisor* supervisor, std::unique_ptr<ClientSession> session)
      : supervisor_(supervisor), session_(std::move(session)) {}
  Supervisor* supervisor_;
  std::unique_ptr<ClientSession> session_;
};

}  // namespace millrace
