#include "millrace/train/monitored_session.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "millrace/base/cancellation.h"
#include "millrace/base/log.h"
#include "millrace/base/mutex.h"
#include "millrace/base/stop_gate.h"
#include "millrace/train/global_step.h"
#include "millrace/train/hooks/hooked_run.h"
#include "millrace/train/hooks/hooks.h"
#include "millrace/train/notice_report.h"
#include "millrace/train/progress.h"
#include "millrace/train/queue_runner.h"

namespace millrace {
namespace {

// The number of signatures of Run (not MakeStep) that stay compiled.
constexpr size_t kMostSignatures = 128;

// The part of a grace period that is left to the step in hand, and to one that waits for other workers.
constexpr double kPatience = 0.8, kPatienceTogether = 0.4;

using SignatureKey = std::vector<std::pair<const Node*, int>>;

SignatureKey KeyOf(const ClientSession::Feeds& feeds, const std::vector<Output>& fetches,
                   const std::vector<Operation>& targets) {
  SignatureKey key;
  key.reserve(feeds.size() + fetches.size() + targets.size() + 2);
  for (const auto& [output, value] : feeds) key.emplace_back(output.node(), output.index());
  key.emplace_back(nullptr, -1);
  for (const Output& output : fetches) key.emplace_back(output.node(), output.index());
  key.emplace_back(nullptr, -1);
  for (const Operation& op : targets) key.emplace_back(op.node(), 0);
  return key;
}

}  // namespace

struct MonitoredSession::State {
  // A session and its threads, replaced together. Later members use earlier ones.
  struct Live {
    std::unique_ptr<ClientSession> session;
    // Whether the state is on servers, which may live on when the session is lost.
    bool is_remote = false;
    // Cancels the current run when a thread has failed, because what the run waits for may never come.
    CancellationManager failed;
    std::unique_ptr<Coordinator> coordinator;
  };

  State(const Scope& scope, std::unique_ptr<SessionCreator> creator, MonitoredSessionOptions options)
      : scope(scope), creator(std::move(creator)), options(std::move(options)) {}

  Status Begin();
  // Creates a session with all that belongs to it; tries again if it is lost meanwhile.
  Status MakeLive(bool recovering);
  StatusOr<std::shared_ptr<Live>> TryMakeLive(const CreateSessionOptions& create, std::optional<int64_t>* step);
  void CloseLive();
  void Remember(const std::shared_ptr<HookedSignature>& signature) {
    std::erase_if(signatures, [](const auto& weak) { return weak.expired(); });
    signatures.push_back(signature);
  }
  Status Recover(const Status& why);
  // Whether `status`, or the error of a thread, calls for a new session. If not, `status` becomes the error to return
  // to the caller.
  bool IsLost(Status* status);
  // Ends the training because of a notice. Runs on a thread of its own.
  void React(const Notice& notice);
  // Calls the hooks' OnNotice, and tells the launcher and the log what has become of it.
  void SaveForNotice(const Notice& notice);
  Status StoppedByNotice() const { return millrace::StoppedByNotice(options.notices->given().value_or(Notice())); }
  bool AnyHook(bool (SessionRunHook::*says)() const) const {
    return std::any_of(options.hooks.begin(), options.hooks.end(),
                       [&](const auto& hook) { return (hook.get()->*says)(); });
  }
  WaitSettings Waiting();
  std::shared_ptr<Live> live() const {
    MutexLock lock(&mu);
    return live_;
  }

  const Scope scope;
  const std::unique_ptr<SessionCreator> creator;
  MonitoredSessionOptions options;
  std::shared_ptr<ProgressHook> progress;
  Endpoint watched;  // the global step
  // Their compiled steps belong to the session.
  std::vector<std::weak_ptr<HookedSignature>> signatures;
  absl::flat_hash_map<SignatureKey, std::shared_ptr<HookedSignature>> of_runs;
  std::atomic<bool> created{false};  // there has been a session
  // A run that is repeated in another session keeps its identity.
  RunIdentity next_run = RunIdentity::OfNewClient();
  RepeatedRuns of_runners;
  // The first loss since the last successful run.
  std::optional<absl::Time> lost_since;
  // The last run failed with an error that a new session does not fix, so the training has not ended well.
  bool failed = false;

  Notification stop;  // set by RequestStop
  Notification wake;  // set by RequestStop and by a notice: ends waits
  Notification ends;  // set by Close
  bool subscribed = false;
  StopGate gate;  // a run, or the creation of the session, is inside; a notice shuts it
  std::atomic<bool> noticed{false};
  std::atomic<bool> cancelled{false};  // the run in hand, because of a notice
  std::atomic<bool> reported{false};   // what has become of the notice
  mutable Mutex mu;
  std::shared_ptr<Live> live_ ABSL_GUARDED_BY(mu);  // null: closed, or being created
  bool closed ABSL_GUARDED_BY(mu) = false;
  int sessions_made ABSL_GUARDED_BY(mu) = 0;
  NoticeSubscription subscription;  // last: the reaction uses the others
};

Status MonitoredSession::State::Begin() {
  const auto begin = [this](const Hooks& hooks) -> Status {
    for (const auto& hook : hooks) {
      if (hook == nullptr) return InvalidArgument("a hook of the session is null");
      MR_RETURN_IF_ERROR(hook->Begin(scope));
    }
    return scope.status();
  };
  progress = std::make_shared<ProgressHook>(ProgressOptions{.loss = options.loss, .clock = options.wait.clock});
  options.hooks.insert(options.hooks.begin(), progress);
  MR_RETURN_IF_ERROR(begin(options.hooks));
  MR_RETURN_IF_ERROR(creator->Begin(scope));
  if (const std::optional<Var> step = FindGlobalStep(scope)) watched = step->endpoint();
  if (options.late_hooks == nullptr) return absl::OkStatus();
  MR_ASSIGN_OR_RETURN(const Hooks late, std::exchange(options.late_hooks, nullptr)());
  MR_RETURN_IF_ERROR(begin(late));
  options.hooks.insert(options.hooks.begin() + 1, late.begin(), late.end());
  return absl::OkStatus();
}

WaitSettings MonitoredSession::State::Waiting() {
  WaitSettings wait = options.wait;
  if (wait.pause == nullptr) wait.pause = [this](absl::Duration time) { wake.WaitFor(time); };
  wait.give_up = [this, also = options.wait.give_up]() -> Status {
    if (stop.HasBeenNotified()) return Cancelled("a stop was requested");
    if (noticed) return StoppedByNotice();
    return also == nullptr ? absl::OkStatus() : also();
  };
  return wait;
}

StatusOr<std::shared_ptr<MonitoredSession::State::Live>> MonitoredSession::State::TryMakeLive(
    const CreateSessionOptions& create, std::optional<int64_t>* step) {
  MR_ASSIGN_OR_RETURN(PreparedSession prepared, creator->CreateSession(create));
  created = true;
  auto made = std::make_shared<Live>();
  made->session = std::move(prepared.session);
  made->is_remote = made->session->session().ListDevices().empty();
  CoordinatorOptions coordinate{.clock = options.wait.clock, .start_thread = options.wait.start_thread};
  if (coordinate.start_thread != nullptr) coordinate.pause = options.wait.pause;
  made->coordinator = std::make_unique<Coordinator>(std::move(coordinate));
  made->coordinator->OnStop([live = made.get()] {
    if (!live->coordinator->status().ok()) live->failed.StartCancel();
  });
  *step = prepared.step;
  const auto start = [&]() -> Status {
    MR_RETURN_IF_ERROR(StartQueueRunners(scope, made->session.get(), made->coordinator.get(),
                                         made->is_remote ? &of_runners : nullptr));
    for (const auto& hook : options.hooks)
      MR_RETURN_IF_ERROR(hook->AfterCreateSession(made->session.get(), made->coordinator.get()));
    if (!create.values_follow || !*step) return absl::OkStatus();
    MR_ASSIGN_OR_RETURN(*step, ReadGlobalStep(made->session.get(), *FindGlobalStep(scope)));
    MR_LOG(Info, "got the values of another worker: training begins at step ", **step);
    return absl::OkStatus();
  };
  const Status status = start();
  if (status.ok()) return made;
  made->coordinator->RequestStop();
  made->session->session().Close().IgnoreError();
  Status threads = made->coordinator->Join(options.stop_grace_period);
  // The hook may have failed because of the thread.
  return threads.ok() || absl::IsDeadlineExceeded(threads) || IsSessionLost(status) ? status : threads;
}

Status MonitoredSession::State::MakeLive(bool recovering) {
  NamedWait wait("the training", Waiting(), options.max_wait, nullptr);
  while (true) {
    std::optional<int64_t> step;
    const std::optional<int64_t> before = progress->last_step();
    // Once the variables have got their values, others may train: a session after that does not overwrite them.
    const bool follow = AnyHook(&SessionRunHook::GivesValues);
    StatusOr<std::shared_ptr<Live>> made =
        TryMakeLive({.recovering = recovering || created, .values_follow = follow, .wait = Waiting()}, &step);
    if (made.ok()) {
      if (recovering && step) {
        MR_LOG(Info, "training resumes at step ", *step,
               before ? absl::StrCat("; it was at step ", *before, " when the session was lost") : "");
      }
      progress->Resume(step);
      MutexLock lock(&mu);
      live_ = *std::move(made);
      ++sessions_made;
      return absl::OkStatus();
    }
    if (!options.recover || !IsSessionLost(made.status())) return made.status();
    MR_RETURN_IF_ERROR(wait.Again(absl::StrCat("a session: ", made.status().message())));
  }
}

void MonitoredSession::State::CloseLive() {
  std::shared_ptr<Live> gone;
  {
    MutexLock lock(&mu);
    gone.swap(live_);
  }
  if (gone == nullptr) return;
  gone->coordinator->RequestStop();
  for (const auto& weak : signatures) {
    if (const auto signature = weak.lock()) signature->Reset();
  }
  // Cancels what its threads wait for.
  gone->session->session().Close().IgnoreError();
  const Status threads = gone->coordinator->Join(options.stop_grace_period);
  if (!threads.ok() && !IsSessionLost(threads))
    MR_LOG(Warning, "a thread of the lost session failed: ", threads.ToString());
}

Status MonitoredSession::State::Recover(const Status& why) {
  const absl::Time now = options.wait.clock->Now();
  const bool again = lost_since.has_value();
  if (!again) lost_since = now;
  CloseLive();
  if (now - *lost_since >= options.max_wait) {
    return WithSuffix(why, absl::StrCat(" (new sessions have not helped for ",
                                        absl::FormatDuration(absl::Trunc(now - *lost_since, absl::Seconds(1))), ")"));
  }
  MR_LOG(Warning, "the session was lost and is being recreated: ", why.message());
  ReportProgress({.phase = "recovering"});
  // Backs off if the session is lost again immediately.
  if (again) Waiting().pause(std::clamp((now - *lost_since) / 10, absl::Milliseconds(20), absl::Seconds(1)));
  if (stop.HasBeenNotified() || noticed) return why;
  return MakeLive(/*recovering=*/true);
}

bool MonitoredSession::State::IsLost(Status* status) {
  const std::shared_ptr<Live> now = live();
  const Status of_threads = now->coordinator->status();
  if (options.recover && (IsSessionLost(*status) || IsSessionLost(of_threads))) {
    if (!IsSessionLost(*status)) *status = of_threads;
    return true;
  }
  if (of_threads.ok()) return false;
  Status reported = now->coordinator->Join(options.stop_grace_period);
  *status = reported.ok() ? of_threads : std::move(reported);
  return false;
}

void MonitoredSession::State::React(const Notice& notice) {
  const bool together = AnyHook(&SessionRunHook::StepsTogether);
  const absl::Duration patience = (together ? kPatienceTogether : kPatience) * notice.grace;
  if (together && !options.is_chief && created) {
    ReportProgress({.notice = "follows"});
    options.notices->SetExitCode();
    if (ends.WaitFor(patience)) return;
  } else {
    ReportProgress({.notice = "stopping"});
  }
  MR_LOG(Info, notice.SignalName(), ": the step in hand is the last");
  noticed = true;
  wake.Notify();
  gate.Stop();
  if (!gate.WaitFor(patience)) {
    // It waits for something that will not come, such as the steps of others that have ended.
    cancelled = true;
    if (const auto now = live()) now->failed.StartCancel();
    gate.Wait();
  }
  options.notices->SetExitCode();
  SaveForNotice(notice);
  if (const auto now = live()) now->coordinator->RequestStop();
}

void MonitoredSession::State::SaveForNotice(const Notice& notice) {
  std::optional<int64_t> step = progress->last_step();
  const std::shared_ptr<Live> now = live();
  reported = true;
  StatusOr<std::string> checkpoint = std::string();
  if (now == nullptr && created && options.is_chief) checkpoint = Unavailable("the session was lost");
  if (cancelled && !AnyHook(&SessionRunHook::CancelledStepLeavesNoTrace))
    checkpoint = Cancelled("the step in hand did not end in time and was cancelled");
  for (size_t i = 0; i < options.hooks.size() && now != nullptr && checkpoint.ok(); ++i) {
    StatusOr<std::string> name = options.hooks[i]->OnNotice(now->session.get());
    if (!name.ok() || !name->empty()) checkpoint = std::move(name);
  }
  const std::optional<Var> global_step = FindGlobalStep(scope);
  if (now != nullptr && global_step) {
    if (const StatusOr<int64_t> read = ReadGlobalStep(now->session.get(), *global_step); read.ok()) step = *read;
  }
  ReportStop(notice, step, checkpoint);
}

MonitoredSession::MonitoredSession(std::unique_ptr<State> state) : state_(std::move(state)) {}

StatusOr<std::unique_ptr<MonitoredSession>> MonitoredSession::Create(const Scope& scope,
                                                                     std::unique_ptr<SessionCreator> creator,
                                                                     MonitoredSessionOptions options) {
  MR_RETURN_IF_ERROR(scope.status());
  auto state = std::make_unique<State>(scope, std::move(creator), std::move(options));
  MR_RETURN_IF_ERROR(state->Begin());
  const bool entered = state->gate.Enter();
  MR_CHECK(entered);
  // A simulation has no process that could be given a notice.
  NoticeBoard* const notices = state->options.notices;
  if (notices != nullptr && (state->options.wait.start_thread == nullptr || notices != NoticeBoard::OfProcess())) {
    state->subscription = notices->Subscribe([state = state.get()](const Notice& notice) { state->React(notice); });
    state->subscribed = true;
  }
  const Status made = notices != nullptr && notices->given() ? state->StoppedByNotice() : state->MakeLive(false);
  state->gate.Leave();
  MR_RETURN_IF_ERROR(made);
  return std::unique_ptr<MonitoredSession>(new MonitoredSession(std::move(state)));
}

MonitoredSession::~MonitoredSession() {
  if (const Status status = Close(); !status.ok())
    MR_LOG(Error, "the training ended with an error: ", status.ToString());
}

Status MonitoredSession::Run(HookedSignature* signature, absl::Span<const Tensor> feeds, const RunOptions& options,
                             RunMetadata* metadata, Tensors* results) {
  State& state = *state_;
  // Also for a loop that checks ShouldStop: the notice may come between that and this.
  if (!state.gate.Enter()) return state.StoppedByNotice();
  const absl::Cleanup leave = [&] { state.gate.Leave(); };
  RunIdentity identity = options.identity;
  for (;; ++identity.attempt) {
    const std::shared_ptr<State::Live> live = state.live();
    if (live == nullptr) return FailedPrecondition("the session is closed");
    Status status;
    bool ran = false;
    if (!live->coordinator->ShouldStop()) {
      if (state.stop.HasBeenNotified())
        return FailedPrecondition("the training was stopped; check ShouldStop before each run");
      HookedSignature::Call call{
          .session = live->session.get(), .hooks = &state.options.hooks, .options = options, .metadata = metadata};
      if (call.options.cancellation == nullptr) call.options.cancellation = &live->failed;
      if (!identity.given() && state.options.recover && live->is_remote)
        identity = std::exchange(state.next_run, state.next_run.Next());
      call.options.identity = identity;
      call.watched = state.watched;
      status = signature->Run(feeds, &call, results);
      ran = true;
      if (call.watched_value) state.progress->Saw(*call.watched_value);
      if (call.stop_requested) live->coordinator->RequestStop();
      if (status.ok()) {
        state.lost_since.reset();
        state.failed = false;
        return status;
      }
    } else if (live->coordinator->status().ok()) {
      return FailedPrecondition("the training was stopped; check ShouldStop before each run");
    }
    if (state.cancelled) {
      state.failed = !state.AnyHook(&SessionRunHook::CancelledStepLeavesNoTrace);
      live->coordinator->RequestStop();
      return state.StoppedByNotice();
    }
    if (!state.IsLost(&status)) {
      if (absl::IsOutOfRange(status) && ran) {
        live->coordinator->RequestStop();
      } else {
        state.failed = true;
      }
      return status;
    }
    if (Status recovered = state.Recover(status); !recovered.ok()) {
      MutexLock lock(&state.mu);
      state.closed = true;
      return recovered;
    }
  }
}

StatusOr<Tensors> MonitoredSession::Run(const ClientSession::Feeds& feeds, const std::vector<Output>& fetches,
                                        const std::vector<Operation>& targets) {
  Tensors results;
  MR_RETURN_IF_ERROR(Run(RunOptions(), feeds, fetches, targets, &results, nullptr));
  return results;
}

Status MonitoredSession::Run(const RunOptions& options, const ClientSession::Feeds& feeds,
                             const std::vector<Output>& fetches, const std::vector<Operation>& targets,
                             Tensors* results, RunMetadata* metadata) {
  SignatureKey key = KeyOf(feeds, fetches, targets);
  std::vector<Tensor> values;
  for (const auto& [output, value] : feeds) values.push_back(value);
  auto it = state_->of_runs.find(key);
  if (it == state_->of_runs.end()) {
    std::vector<Output> outputs;
    for (const auto& [output, value] : feeds) outputs.push_back(output);
    auto made = std::make_shared<HookedSignature>(std::move(outputs), fetches, targets);
    MR_RETURN_IF_ERROR(made->Check());
    if (state_->of_runs.size() >= kMostSignatures) state_->of_runs.clear();
    state_->Remember(made);
    it = state_->of_runs.emplace(std::move(key), std::move(made)).first;
  }
  return Run(it->second.get(), values, options, metadata, results);
}

StatusOr<MonitoredStep> MonitoredSession::MakeStep(const std::vector<Output>& feeds, const std::vector<Output>& fetches,
                                                   const std::vector<Operation>& targets) {
  auto signature = std::make_shared<HookedSignature>(feeds, fetches, targets);
  MR_RETURN_IF_ERROR(signature->Check());
  state_->Remember(signature);
  return MonitoredStep(this, std::move(signature));
}

Status MonitoredStep::Run(absl::Span<const Tensor> feeds, Tensors* results) const {
  return session_->Run(signature_.get(), feeds, RunOptions(), nullptr, results);
}

StatusOr<Tensors> MonitoredStep::operator()(const std::vector<Tensor>& feeds) const {
  Tensors results;
  MR_RETURN_IF_ERROR(Run(feeds, &results));
  return results;
}

bool MonitoredSession::ShouldStop() const {
  if (state_->stop.HasBeenNotified() || state_->gate.stopping()) return true;
  std::shared_ptr<State::Live> live;
  {
    MutexLock lock(&state_->mu);
    if (state_->closed) return true;
    live = state_->live_;
  }
  if (live == nullptr || !live->coordinator->ShouldStop()) return false;
  // The next run recreates the session if that can help.
  const Status why = live->coordinator->status();
  return why.ok() || !state_->options.recover || !IsSessionLost(why);
}

void MonitoredSession::RequestStop() {
  state_->stop.Notify();
  state_->wake.Notify();
  if (const auto live = state_->live()) live->coordinator->RequestStop();
}

Status MonitoredSession::Close() {
  {
    MutexLock lock(&state_->mu);
    if (std::exchange(state_->closed, true)) return absl::OkStatus();
  }
  // From here on a notice changes nothing, but must not end the process before the last checkpoint is whole.
  NoticeSubscription until_closed;
  if (state_->subscribed) until_closed = state_->options.notices->Subscribe([](const Notice&) {});
  state_->ends.Notify();
  state_->subscription.Reset();
  const std::shared_ptr<State::Live> live = state_->live();
  if (live == nullptr) return absl::OkStatus();
  Status result;
  if (!state_->failed && live->coordinator->status().ok()) {
    for (const auto& hook : state_->options.hooks) {
      const Status status = hook->End(live->session.get());
      if (result.ok()) result = status;
    }
    const std::optional<Notice> notice = state_->subscribed ? state_->options.notices->given() : std::nullopt;
    if (notice && result.ok() && !state_->reported) state_->SaveForNotice(*notice);
  }
  live->coordinator->RequestStop();
  const Status threads = live->coordinator->Join(state_->options.stop_grace_period);
  if (!threads.ok()) result = threads;
  state_->CloseLive();
  return result;
}

ClientSession* MonitoredSession::raw_session() const {
  const auto live = state_->live();
  return live == nullptr ? nullptr : live->session.get();
}

Coordinator* MonitoredSession::coordinator() const {
  const auto live = state_->live();
  return live == nullptr ? nullptr : live->coordinator.get();
}

int MonitoredSession::sessions_made() const {
  MutexLock lock(&state_->mu);
  return state_->sessions_made;
}

}  // namespace millrace
