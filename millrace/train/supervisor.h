// The older way to run a training: one object that prepares the session and runs the services beside it; the training loop is the program's own.
//
//   auto supervisor = Supervisor::Create(scope, {.is_chief = index == 0, .logdir = "/tmp/train"}).value();
//   ManagedSession managed = supervisor->Managed({.target = server->target()}).value();
//   while (!supervisor->ShouldStop()) {
//     if (Status status = managed->Run(train); !status.ok()) return managed.Close(status);
//   }
//   return managed.Close();
//
// MonitoredTrainingSession does more: it makes lost sessions anew, and a hook sees every run.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "millrace/train/coordinator.h"
#include "millrace/train/file_writer.h"
#include "millrace/train/queue_runner.h"
#include "millrace/train/scaffold.h"
#include "millrace/train/session_manager.h"

namespace millrace {

// TensorFlow's names and defaults.
struct SupervisorOptions {
  // The chief initialises, restores, saves and writes summaries; one task is it.
  bool is_chief = true;
  // See Scaffold; what is left empty gets its default.
  Operation init_op = {};
  ClientSession::Feeds init_feed = {};
  std::function<Status(ClientSession*)> init_fn = nullptr;
  Output ready_op = {};
  Output ready_for_local_init_op = {};
  Operation local_init_op = {};
  Output summary_op = {};
  std::shared_ptr<Saver> saver = nullptr;
  // By default GlobalStep's, when there is one.
  std::optional<Var> global_step = std::nullopt;
  // Where checkpoints and event files go; without it there are none.
  std::string logdir = {};
  std::string checkpoint_basename = "model.ckpt";
  // Zero or infinite: never.
  absl::Duration save_summaries_secs = absl::Seconds(120);
  absl::Duration save_model_secs = absl::Seconds(600);
  // The most between two looks whether the chief is ready; they begin more often.
  absl::Duration recovery_wait_secs = absl::Seconds(30);
  absl::Duration stop_grace_secs = absl::Seconds(120);
  absl::Duration max_wait_secs = absl::Seconds(7200);
  WaitSettings wait = {};
};

class ManagedSession;

// Thread-safe but for Create, Managed and Stop. Adds nodes when it is made: do that last, before there is a session.
class Supervisor {
 public:
  // INVALID_ARGUMENT for options that make no sense; the scope's error when building fails.
  static StatusOr<std::unique_ptr<Supervisor>> Create(const Scope& scope, SupervisorOptions options = {});
  // As Stop; an error is logged.
  ~Supervisor();

  // The chief's session is restored or initialised, others wait for that. Starts the standard services, at the chief, and the graph's queue runners.
  // The session is the caller's, ends after Stop, and is not made anew when it is lost.
  StatusOr<std::unique_ptr<ClientSession>> PrepareOrWaitForSession(const SessionOptions& session = {}, bool start_standard_services = true);
  // The same with its end: Stop comes before the end of the session.
  StatusOr<ManagedSession> Managed(const SessionOptions& session = {}, bool start_standard_services = true);

  // What the chief does beside the training: checkpoints every save_model_secs, summaries every save_summaries_secs with "global_step/sec". FAILED_PRECONDITION
  // when it is not the chief, or there is no logdir.
  Status StartStandardServices(ClientSession* session);
  Status StartQueueRunners(ClientSession* session);
  // Calls `body` every `period` until the stop.
  Status Loop(std::string name, absl::Duration period, absl::AnyInvocable<Status()> body);
  // Writes what a summary op gave, at the global step of now unless it is given. FAILED_PRECONDITION without a writer: no logdir, or not the chief.
  Status SummaryComputed(ClientSession* session, const Tensor& summary, std::optional<int64_t> global_step = std::nullopt);

  bool ShouldStop() const { return coordinator_.ShouldStop(); }
  void RequestStop(Status why = absl::OkStatus()) { coordinator_.RequestStop(std::move(why)); }
  bool WaitForStop(absl::Duration timeout = absl::InfiniteDuration()) const { return coordinator_.WaitForStop(timeout); }
  // Ends the threads, which have stop_grace_secs, and closes the event file. The first error of a thread, once. A second time does nothing.
  Status Stop();

  Coordinator* coord() { return &coordinator_; }
  FileWriter* summary_writer() { return writer_.get(); }
  Saver* saver() { return scaffold_.saver.get(); }
  // "LOGDIR/model.ckpt"
  std::string save_path() const;

 private:
  Supervisor(const Scope& scope, SupervisorOptions options);
  Status Begin();
  Status SaveModel(ClientSession* session);
  Status SaveSummaries(ClientSession* session);
  StatusOr<int64_t> Step(ClientSession* session) const;

  const Scope scope_;
  const SupervisorOptions options_;
  Scaffold scaffold_;
  std::optional<Var> global_step_;
  std::unique_ptr<FileWriter> writer_;
  bool stopped_ = false;
  Coordinator coordinator_;  // last: its threads use the others
};

// A session of a Supervisor, which outlives it, and the stop that belongs to it.
class ManagedSession {
 public:
  ManagedSession(ManagedSession&&) = default;
  // As Close; an error is logged.
  ~ManagedSession();

  ClientSession* get() const { return session_.get(); }
  ClientSession* operator->() const { return session_.get(); }
  ClientSession& operator*() const { return *session_; }

  // Ends the training, with the error of its loop if that had one: stops the supervisor, then ends the session. Returns that error, or the first of a
  // thread, once. OUT_OF_RANGE, the end of the input, is none.
  Status Close(Status of_loop = absl::OkStatus());

 private:
  friend class Supervisor;
  ManagedSession(Supervisor* supervisor, std::unique_ptr<ClientSession> session) : supervisor_(supervisor), session_(std::move(session)) {}
  Supervisor* supervisor_;
  std::unique_ptr<ClientSession> session_;
};

}  // namespace millrace
