#include "millrace/train/supervisor.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "millrace/base/log.h"
#include "millrace/train/global_step.h"
#include "millrace/train/notice_report.h"
#include "millrace/train/progress.h"
#include "millrace/train/summary.h"

namespace millrace {
namespace {

bool IsOn(absl::Duration period) { return period > absl::ZeroDuration() && period != absl::InfiniteDuration(); }

}  // namespace

Supervisor::Supervisor(const Scope& scope, SupervisorOptions options)
    : scope_(scope), options_(std::move(options)), coordinator_({.clock = options_.wait.clock}) {}

StatusOr<std::unique_ptr<Supervisor>> Supervisor::Create(const Scope& scope, SupervisorOptions options) {
  std::unique_ptr<Supervisor> made(new Supervisor(scope, std::move(options)));
  MR_RETURN_IF_ERROR(made->Begin());
  return made;
}

Status Supervisor::Begin() {
  if (options_.save_checkpoint_every < absl::ZeroDuration() || options_.save_summaries_every < absl::ZeroDuration()) {
    return InvalidArgument("save_checkpoint_every and save_summaries_every must not be negative");
  }
  if (options_.checkpoint_basename.empty()) return InvalidArgument("checkpoint_basename is empty");
  scaffold_ = {.init_op = options_.init_op,
               .init_feed = options_.init_feed,
               .init_fn = options_.init_fn,
               .ready_op = options_.ready_op,
               .ready_for_local_init_op = options_.ready_for_local_init_op,
               .local_init_op = options_.local_init_op,
               .summary_op = options_.summary_op,
               .saver = options_.saver};
  global_step_ = options_.global_step ? options_.global_step : FindGlobalStep(scope_);
  MR_RETURN_IF_ERROR(scaffold_.Finalize(scope_, {.saver = options_.is_chief && !options_.logdir.empty()}));
  if (options_.is_chief && !options_.logdir.empty()) {
    MR_ASSIGN_OR_RETURN(writer_, FileWriter::Create(options_.logdir));
    MR_RETURN_IF_ERROR(writer_->AddGraph(scope_));
  }
  return absl::OkStatus();
}

Supervisor::~Supervisor() {
  if (const Status status = Stop(); !status.ok())
    MR_LOG(Error, "the training ended with an error that no call has returned: ", status.ToString());
}

std::string Supervisor::save_path() const { return absl::StrCat(options_.logdir, "/", options_.checkpoint_basename); }

StatusOr<std::unique_ptr<ClientSession>> Supervisor::PrepareOrWaitForSession(const SessionOptions& session,
                                                                             bool start_standard_services) {
  MR_RETURN_IF_ERROR(coordinator_.ClearStop());
  stopped_ = false;
  MR_RETURN_IF_ERROR(Subscribe());
  const SessionManager manager(scope_, {.ready_op = scaffold_.ready_op,
                                        .ready_for_local_init_op = scaffold_.ready_for_local_init_op,
                                        .local_init_op = scaffold_.local_init_op,
                                        .local_init_feed = scaffold_.local_init_feed,
                                        .wait = Waiting()});
  PreparedSession prepared;
  if (options_.is_chief) {
    MR_ASSIGN_OR_RETURN(prepared, manager.PrepareSession({.session = session,
                                                          .init_op = scaffold_.init_op,
                                                          .init_feed = scaffold_.init_feed,
                                                          .init_fn = scaffold_.init_fn,
                                                          .saver = scaffold_.saver,
                                                          .checkpoint_dir = options_.logdir,
                                                          .max_wait = options_.max_wait}));
  } else {
    MR_ASSIGN_OR_RETURN(prepared, manager.WaitForSession(session, options_.max_wait));
  }
  session_ = prepared.session.get();
  ReportProgress({.step = prepared.step, .phase = "training"});
  if (start_standard_services && options_.is_chief && !options_.logdir.empty())
    MR_RETURN_IF_ERROR(StartStandardServices(prepared.session.get()));
  MR_RETURN_IF_ERROR(StartQueueRunners(prepared.session.get()));
  return std::move(prepared.session);
}

Status Supervisor::Subscribe() {
  // A simulation has no process that could be given a notice.
  const bool simulated = options_.wait.start_thread != nullptr && options_.notices == NoticeBoard::OfProcess();
  if (options_.notices == nullptr || simulated) return absl::OkStatus();
  subscription_ = options_.notices->Subscribe([this](const Notice& notice) {
    MR_LOG(Info, notice.SignalName(), ": the step in hand is the last");
    ReportProgress({.notice = "stopping"});
    options_.notices->SetExitCode();
    coordinator_.RequestStop();
  });
  const std::optional<Notice> given = options_.notices->given();
  return given ? StoppedByNotice(*given) : absl::OkStatus();
}

WaitSettings Supervisor::Waiting() {
  WaitSettings wait = options_.wait;
  if (wait.pause == nullptr) wait.pause = [this](absl::Duration time) { coordinator_.WaitForStop(time); };
  wait.give_up = [this, also = options_.wait.give_up]() -> Status {
    if (options_.notices != nullptr) {
      if (const std::optional<Notice> given = options_.notices->given()) return StoppedByNotice(*given);
    }
    return also == nullptr ? absl::OkStatus() : also();
  };
  return wait;
}

StatusOr<ManagedSession> Supervisor::Managed(const SessionOptions& session, bool start_standard_services) {
  StatusOr<std::unique_ptr<ClientSession>> prepared = PrepareOrWaitForSession(session, start_standard_services);
  if (!prepared.ok()) {
    Stop().IgnoreError();
    return prepared.status();
  }
  return ManagedSession(this, *std::move(prepared));
}

Status Supervisor::StartStandardServices(ClientSession* session) {
  if (!options_.is_chief) return FailedPrecondition("only the chief runs the standard services");
  if (options_.logdir.empty()) return FailedPrecondition("the standard services need a logdir");
  if (IsOn(options_.save_checkpoint_every) && scaffold_.saver != nullptr) {
    MR_RETURN_IF_ERROR(scaffold_.saver->RecoverLastCheckpoints(options_.logdir));
    MR_RETURN_IF_ERROR(coordinator_.Loop("save_model", options_.save_checkpoint_every,
                                         [this, session] { return SaveModel(session); }));
  }
  if (!IsOn(options_.save_summaries_every)) return absl::OkStatus();
  if (!scaffold_.summary_op.empty()) {
    MR_RETURN_IF_ERROR(coordinator_.Loop("save_summaries", options_.save_summaries_every,
                                         [this, session] { return SaveSummaries(session); }));
  }
  if (!global_step_) return absl::OkStatus();
  return coordinator_.Loop("count_steps", options_.save_summaries_every,
                           [this, session, last = std::optional<std::pair<int64_t, absl::Time>>()]() mutable -> Status {
                             MR_ASSIGN_OR_RETURN(const int64_t step, Step(session));
                             const absl::Time now = options_.wait.clock->Now();
                             if (last && now > last->second) {
                               const double rate =
                                   static_cast<double>(step - last->first) / absl::ToDoubleSeconds(now - last->second);
                               MR_LOG(Info, absl::StrFormat("global_step/sec: %.4g (step %d)", rate, step));
                               MR_RETURN_IF_ERROR(writer_->AddScalar("global_step/sec", rate, step));
                             }
                             last = {step, now};
                             return absl::OkStatus();
                           });
}

Status Supervisor::StartQueueRunners(ClientSession* session) {
  return millrace::StartQueueRunners(scope_, session, &coordinator_);
}

Status Supervisor::Loop(std::string name, absl::Duration period, absl::AnyInvocable<Status()> body) {
  return coordinator_.Loop(std::move(name), period, std::move(body));
}

StatusOr<int64_t> Supervisor::Step(ClientSession* session) const {
  if (!global_step_) return 0;
  return ReadGlobalStep(session, *global_step_);
}

Status Supervisor::SaveModel(ClientSession* session) {
  SaveOptions save;
  if (global_step_) {
    MR_ASSIGN_OR_RETURN(save.global_step, Step(session));
  }
  MR_RETURN_IF_ERROR(scaffold_.saver->Save(session, save_path(), save).status());
  if (save.global_step) ReportProgress({.saved = save.global_step});
  return absl::OkStatus();
}

Status Supervisor::SaveForNotice(const Notice& notice, const Status& of_threads) {
  std::optional<int64_t> step;
  StatusOr<std::string> checkpoint = std::string();
  const bool saves = options_.is_chief && scaffold_.saver != nullptr && session_ != nullptr;
  if (saves && of_threads.ok()) {
    if (global_step_) {
      if (const StatusOr<int64_t> read = Step(session_); read.ok()) step = *read;
    }
    const Status saved = SaveModel(session_);
    checkpoint = options_.checkpoint_basename + (step ? absl::StrCat("-", *step) : "");
    if (!saved.ok()) checkpoint = saved;
  } else if (saves) {
    checkpoint = of_threads;
  }
  ReportStop(notice, step, checkpoint);
  return checkpoint.status();
}

Status Supervisor::SaveSummaries(ClientSession* session) {
  MR_ASSIGN_OR_RETURN(const Tensors summary, session->Run({scaffold_.summary_op}));
  return SummaryComputed(session, summary[0]);
}

Status Supervisor::SummaryComputed(ClientSession* session, const Tensor& summary, std::optional<int64_t> global_step) {
  if (writer_ == nullptr) return FailedPrecondition("only the chief writes summaries, and only with a logdir");
  if (!global_step) {
    MR_ASSIGN_OR_RETURN(global_step, Step(session));
  }
  return writer_->AddSummary(summary, *global_step);
}

Status Supervisor::Stop() {
  if (std::exchange(stopped_, true)) return absl::OkStatus();
  // From here on a notice only keeps the process until the checkpoint is whole.
  NoticeSubscription until_stopped;
  const bool subscribed = subscription_.active();
  if (subscribed) until_stopped = options_.notices->Subscribe([](const Notice&) {});
  subscription_.Reset();
  coordinator_.RequestStop();
  Status status = coordinator_.Join(options_.stop_grace_period);
  if (const std::optional<Notice> notice = subscribed ? options_.notices->given() : std::nullopt) {
    const Status saved = SaveForNotice(*notice, status);
    if (status.ok()) status = saved;
  }
  session_ = nullptr;
  if (writer_ != nullptr) {
    const Status flushed = writer_->Flush();
    if (status.ok()) status = flushed;
  }
  return status;
}

ManagedSession::~ManagedSession() {
  if (session_ == nullptr) return;
  if (const Status status = Close(); !status.ok())
    MR_LOG(Error, "the training ended with an error that no call has returned: ", status.ToString());
}

Status ManagedSession::Close(Status of_loop) {
  if (session_ == nullptr) return absl::OkStatus();
  // The error of a thread takes precedence over its effect on the loop.
  supervisor_->RequestStop(of_loop);
  Status status = supervisor_->Stop();
  if (status.ok() && !absl::IsOutOfRange(of_loop)) status = std::move(of_loop);
  session_->session().Close().IgnoreError();
  session_.reset();
  return status;
}

}  // namespace millrace
