#include "millrace/launch/supervision.h"

#include <algorithm>
#include <csignal>

#include "absl/strings/str_format.h"

namespace millrace::launch {
namespace {

// How long to wait after a failure for others that happened first, whose messages may arrive later over another pipe.
constexpr absl::Duration kSettle = absl::Milliseconds(200);
// A task that has been suspended for longer than this explains why another one gave up.
constexpr absl::Duration kSuspendedAWhile = absl::Seconds(1);
constexpr size_t kLastWords = 200;
constexpr int kMistake = 2;  // the exit code
// When, in parts of the grace, a notice's order goes on although a task has not ended its step or its program. Servers
// need little time, but all of the others'.
constexpr double kChiefAt = 0.4, kServersAt = 0.8;
constexpr absl::Duration kServersEnd = absl::Seconds(2);

// Signals that come from outside or from the processor, not from a program that gives up because of a peer.
bool IsOwnDoing(int signal) {
  return signal == SIGKILL || signal == SIGSEGV || signal == SIGBUS || signal == SIGILL || signal == SIGFPE;
}

std::string SecondsText(absl::Duration duration) { return absl::StrFormat("%.3g s", absl::ToDoubleSeconds(duration)); }

// Whether it is suspended and not yet killed for that, in which case its end will be explained then.
bool MayCondemn(const TaskRecord& record) {
  return record.suspended_by != 0 && record.state == RunState::kRunning && !record.condemned;
}

}  // namespace

Supervision::Supervision(const JobSpec& job, Clock* clock)
    : clock_(clock), grace_(job.grace), suspend_limit_(job.suspend_limit) {
  bool all_serve = true;
  for (const TaskGroup& group : job.groups) all_serve = all_serve && (group.serves || group.count == 0);
  for (const TaskGroup& group : job.groups) {
    for (int i = 0; i < group.count; ++i) {
      // If all tasks serve, the job is done when they end by themselves.
      tasks_.push_back({.name = {group.name, i},
                        .restart = group.restart,
                        .serves = group.serves && !all_serve,
                        .since = clock->Now()});
    }
  }
  for (size_t i = 0; i < tasks_.size(); ++i) {
    const TaskGroup& group = GroupOf(job, tasks_[i].name.job);
    if (tasks_[i].name.index != 0 || group.side || !group.trains()) continue;
    if (chief_ < 0 || group.name != "worker") chief_ = static_cast<int>(i);
  }
}

void Supervision::Begin() {
  for (size_t i = 0; i < tasks_.size(); ++i) {
    tasks_[i].keeper_asked = true;
    Do(Action::Kind::kStartKeeper, static_cast<int>(i));
  }
}

void Supervision::Move(int task, RunEvent event) {
  TaskRecord& record = tasks_[task];
  const StatusOr<RunState> next = NextTaskState(record.state, event);
  MR_CHECK(next.ok());
  record.state = *next;
  record.since = clock_->Now();
}

void Supervision::MoveJob(RunEvent event) {
  const StatusOr<RunState> next = NextJobState(job_state_, event);
  MR_CHECK(next.ok());
  job_state_ = *next;
}

void Supervision::StartProgram(int task) {
  TaskRecord& record = tasks_[task];
  Move(task, RunEvent::kStart);
  record.gone = record.condemned = false;
  record.start_at = absl::InfiniteFuture();
  Do(Action::Kind::kStartProgram, task);
}

void Supervision::OnKeeperReady(int task) {
  TaskRecord& record = tasks_[task];
  record.keeper_ready = true;
  if (ending()) return;
  if (all_keepers_ready_) {
    if (record.state == RunState::kRestarting && record.start_at <= clock_->Now()) StartProgram(task);
    return;
  }
  all_keepers_ready_ = std::all_of(tasks_.begin(), tasks_.end(), [](const TaskRecord& t) { return t.keeper_ready; });
  if (!all_keepers_ready_) return;
  MoveJob(RunEvent::kStart);
  for (size_t i = 0; i < tasks_.size(); ++i) {
    if (tasks_[i].state == RunState::kPending) StartProgram(static_cast<int>(i));
  }
}

void Supervision::OnStarted(int task, int64_t pid) {
  tasks_[task].pid = pid;
  if (tasks_[task].state == RunState::kStarting) Move(task, RunEvent::kUp);
  if (ending() && IsItsTurn(task)) Do(Action::Kind::kSignal, task, last_signal_ == 0 ? SIGTERM : last_signal_);
  Look();
}

void Supervision::OnNotStarted(int task, absl::string_view why, int code) {
  tasks_[task].gone = true;
  if (tasks_[task].state != RunState::kStarting) return;
  if (ending()) {
    Move(task, RunEvent::kStop);
    return Look();
  }
  Broke({task, RunEvent::kFail, absl::StrCat("could not be started: ", why), code, true}, /*may_restart=*/false);
}

void Supervision::OnSuspended(int task, int signal) {
  tasks_[task].suspended_by = signal;
  tasks_[task].suspended_since = clock_->Now();
}

void Supervision::OnExited(int task, ExitStatus exit, absl::string_view last_words) {
  TaskRecord& record = tasks_[task];
  if (IsTerminal(record.state) || record.state == RunState::kRestarting) return;
  record.exit = exit;
  if (record.state == RunState::kStarting) Move(task, RunEvent::kUp);
  const int suspended_by = record.suspended_by;
  const absl::Duration suspended = clock_->Now() - record.suspended_since;
  record.suspended_by = 0;
  if (ending()) {
    Move(task, RunEvent::kStop);
  } else if (exit.ok()) {
    Move(task, RunEvent::kSucceed);
  } else {
    std::string text = absl::StrCat(exit.ToString(), AtStep(task));
    if (record.condemned && exit.signal == SIGKILL) {
      text = absl::StrCat("was suspended by ", SignalName(suspended_by), AtStep(task), " for ", SecondsText(suspended),
                          " and killed for it");
    } else if (exit.signal == 0 && !last_words.empty()) {
      absl::StrAppend(&text, " (", last_words.substr(0, kLastWords), ")");
    }
    return Broke({task, RunEvent::kFail, std::move(text), exit.ShellCode(), IsOwnDoing(exit.signal)},
                 /*may_restart=*/true);
  }
  Look();
}

void Supervision::OnGone(int task) {
  tasks_[task].gone = true;
  Look();
}

void Supervision::OnKeeperLost(int task, absl::string_view why) {
  TaskRecord& record = tasks_[task];
  record.keeper_ready = record.keeper_asked = false;
  record.gone = true;
  record.suspended_by = 0;
  if (IsTerminal(record.state)) return Look();
  if (ending()) {
    Move(task, RunEvent::kStop);
    return Look();
  }
  const bool ran = record.state == RunState::kStarting || record.state == RunState::kRunning;
  Broke({task, RunEvent::kLose,
         absl::StrCat(ran ? "was lost" : "could not be reached", AtStep(task), why.empty() ? "" : ": ", why), 1, true},
        /*may_restart=*/record.state != RunState::kPending);
}

void Supervision::Broke(Failure failure, bool may_restart) {
  TaskRecord& record = tasks_[failure.task];
  if (may_restart && record.restarts < record.restart.limit && failures_.empty()) {
    const absl::Duration pause = record.restart.Pause(record.restarts);
    ++record.restarts;
    record.start_at = clock_->Now() + pause;
    // A task that is lost during its pause starts a new pause.
    if (record.state != RunState::kRestarting) Move(failure.task, RunEvent::kRetry);
    Do(Action::Kind::kTell, failure.task, 0,
       absl::StrCat(record.name.ToString(), " ", failure.text, "; it is restarted in ", SecondsText(pause),
                    " (restart ", record.restarts, " of ", record.restart.limit, ")"));
    if (job_state_ == RunState::kStarting || job_state_ == RunState::kRunning) MoveJob(RunEvent::kRetry);
    return Look();
  }
  if (record.restarts > 0)
    absl::StrAppend(&failure.text, ", after ", record.restarts, record.restarts == 1 ? " restart" : " restarts");
  Move(failure.task, failure.event);
  failures_.push_back(std::move(failure));
  if (blame_at_ == absl::InfiniteFuture()) blame_at_ = clock_->Now() + kSettle;
  Look();
}

void Supervision::Blame() {
  blame_at_ = absl::InfiniteFuture();
  // The first failure, unless another task died from something that a peer's failure cannot cause.
  auto root = std::find_if(failures_.begin(), failures_.end(), [](const Failure& f) { return f.by_signal; });
  if (root == failures_.end()) root = failures_.begin();
  std::string cause = absl::StrCat(tasks_[root->task].name.ToString(), " ", root->text);
  for (size_t i = 0; i < tasks_.size() && !root->by_signal; ++i) {
    const TaskRecord& other = tasks_[i];
    if (other.suspended_by == 0 || clock_->Now() - other.suspended_since < kSuspendedAWhile) continue;
    cause = absl::StrCat(other.name.ToString(), " was suspended by ", SignalName(other.suspended_by),
                         AtStep(static_cast<int>(i)), " ", SecondsText(clock_->Now() - other.suspended_since),
                         " ago, and ", cause);
    break;
  }
  const bool lost = root->event == RunEvent::kLose;
  End(lost ? Ending::kLost : Ending::kFailed, absl::StrCat(cause, Tail()), std::max(1, root->code), SIGTERM);
}

std::string Supervision::AtStep(int task) const {
  std::optional<int64_t> step = tasks_[task].step;
  // A task that serves makes no steps of its own, so the job's step is used.
  for (size_t i = 0; i < tasks_.size() && tasks_[task].serves; ++i) step = std::max(step, tasks_[i].step);
  return step ? absl::StrCat(" at step ", *step) : "";
}

std::string Supervision::Tail() const {
  const bool others =
      std::any_of(tasks_.begin(), tasks_.end(), [&](const TaskRecord& t) { return !IsTerminal(t.state); }) ||
      failures_.size() > 1;
  return others ? "; the others stopped because of it" : "";
}

void Supervision::End(Ending ending, std::string cause, int code, int signal) {
  ending_ = ending;
  cause_ = std::move(cause);
  code_ = code;
  blame_at_ = absl::InfiniteFuture();
  SignalAll(signal);
  Look();
}

void Supervision::SignalAll(int signal) {
  last_signal_ = signal;
  for (size_t i = 0; i < tasks_.size(); ++i) {
    TaskRecord& record = tasks_[i];
    const int task = static_cast<int>(i);
    if (record.state == RunState::kPending || record.state == RunState::kRestarting) Move(task, RunEvent::kStop);
    if (record.gone) continue;
    if (signal == SIGKILL) {
      Do(Action::Kind::kKill, task);
    } else if (!IsTerminal(record.state) && IsItsTurn(task)) {
      Do(Action::Kind::kSignal, task, signal);
    }
  }
  escalate_at_ = signal == SIGKILL ? absl::InfiniteFuture() : clock_->Now() + grace_;
}

void Supervision::OnInterrupt(int signal) {
  if (finished_) return;
  if (interrupted_ || ending()) {
    interrupted_ = notice_.killed = true;
    return SignalAll(SIGKILL);
  }
  interrupted_ = true;
  End(Ending::kStopped, absl::StrCat("interrupted by ", SignalName(signal), "; all tasks were stopped"), 128 + signal,
      signal == SIGINT ? SIGINT : SIGTERM);
}

void Supervision::OnNotice(int signal) {
  // A scheduler may signal all processes of a job, and a task's word may come first.
  const bool same = noticed() && !interrupted_;
  if (ending() && !same) return OnInterrupt(signal);
  interrupted_ = true;
  if (!same && !finished_) BeginNotice(signal);
}

void Supervision::BeginNotice(int signal) {
  notice_ = {.signal = signal, .chief_at = clock_->Now() + kChiefAt * grace_};
  notice_.servers_at = clock_->Now() + std::max(kServersAt * grace_, grace_ - kServersEnd);
  End(Ending::kStopped, absl::StrCat("interrupted by ", SignalName(signal), "; all tasks were stopped"), 128 + SIGTERM,
      SIGTERM);
}

void Supervision::OnNoticeWord(int task, const TrainingProgress& word) {
  if (finished_) return;
  if (word.notice == "given") {
    const int signal = word.signal > 0 && word.signal < NSIG ? word.signal : SIGTERM;
    if (!ending()) BeginNotice(signal);
    return;
  }
  TaskRecord& record = tasks_[task];
  notice_.heard = true;
  const bool outcome = word.notice == "saved" || word.notice == "failed";
  if (outcome || (word.notice == "ready" && task == chief_ && !notice_.outcome)) notice_.outcome = word;
  if (outcome || word.notice == "ready") record.makes_steps = false;
  if (word.notice == "follows") record.follows = true;
  if (ending()) Look();
}

bool Supervision::IsItsTurn(int task) const {
  using Turn = NoticeState::Turn;
  if (!noticed()) return true;
  if (tasks_[task].serves) return notice_.turn == Turn::kServers;
  return task != chief_ || notice_.turn != Turn::kOthers;
}

void Supervision::AdvanceNotice() {
  using Turn = NoticeState::Turn;
  const absl::Time now = clock_->Now();
  const auto all = [&](auto holds) {
    for (size_t i = 0; i < tasks_.size(); ++i) {
      if (!tasks_[i].serves && !holds(static_cast<int>(i), tasks_[i])) return false;
    }
    return true;
  };
  const auto signal = [&](auto whom) {
    for (size_t i = 0; i < tasks_.size(); ++i) {
      const TaskRecord& record = tasks_[i];
      if (!record.gone && !IsTerminal(record.state) && whom(static_cast<int>(i), record))
        Do(Action::Kind::kSignal, static_cast<int>(i), SIGTERM);
    }
  };
  if (notice_.turn == Turn::kOthers && (now >= notice_.chief_at || all([&](int task, const TaskRecord& t) {
                                          return task == chief_ || IsTerminal(t.state) || !t.makes_steps || t.follows;
                                        }))) {
    notice_.turn = Turn::kChief;
    notice_.chief_at = absl::InfiniteFuture();
    signal([&](int task, const TaskRecord&) { return task == chief_; });
  }
  if (notice_.turn != Turn::kChief) return;
  // Nothing will come any more for which a task that follows the chief could wait: its second signal ends it.
  if (chief_ >= 0 && IsTerminal(tasks_[chief_].state)) {
    signal([&](int, const TaskRecord& t) { return t.follows; });
    for (TaskRecord& record : tasks_) record.follows = false;
  }
  if (now < notice_.servers_at && !all([](int, const TaskRecord& t) { return IsTerminal(t.state); })) return;
  notice_.turn = Turn::kServers;
  notice_.servers_at = absl::InfiniteFuture();
  signal([](int, const TaskRecord& t) { return t.serves; });
}

bool Supervision::EndedBy(int signal, int task) const {
  return task >= 0 && tasks_[task].exit && tasks_[task].exit->signal == signal;
}

void Supervision::JudgeNotice() {
  if (!notice_.heard) return;  // the programs do not know of notices
  std::optional<int64_t> step = notice_.outcome ? notice_.outcome->step : std::nullopt;
  if (!step) {
    for (const TaskRecord& record : tasks_) step = std::max(step, record.step);
  }
  cause_ = absl::StrCat("stopped by ", SignalName(notice_.signal), step ? absl::StrCat(" at step ", *step) : "");
  if (notice_.outcome && notice_.outcome->notice == "saved") {
    absl::StrAppend(&cause_, "; ", notice_.outcome->checkpoint, " is whole");
  } else if (notice_.outcome && notice_.outcome->notice == "ready") {
    absl::StrAppend(&cause_, step ? "; the program saves no checkpoints" : ", before the first step");
  } else if (!step && !notice_.killed && EndedBy(SIGTERM, chief_)) {
    // Its order came before it listened for notices, and so before it could make a step.
    absl::StrAppend(&cause_, ", before the first step");
  } else {
    code_ = 1;
    std::string why = absl::StrCat("it was not saved within ", SecondsText(grace_), " (--grace)");
    if (notice_.outcome) {
      why = notice_.outcome->error;
    } else if (notice_.killed) {
      why = "a second signal ended the job";
    } else if (chief_ >= 0 && last_signal_ != SIGKILL) {
      const std::optional<ExitStatus>& exit = tasks_[chief_].exit;
      why = absl::StrCat(tasks_[chief_].name.ToString(), " ", exit ? exit->ToString() : "was lost");
    }
    absl::StrAppend(&cause_, "; the checkpoint is not whole: ", why);
  }
}

void Supervision::OnRefused(absl::string_view why) {
  if (ending()) return;
  End(Ending::kFailed, std::string(why), kMistake, SIGTERM);
}

void Supervision::OnHang(absl::string_view cause) {
  if (ending()) return;
  End(Ending::kFailed, absl::StrCat(cause, "; all tasks were stopped because of it"), 1, SIGTERM);
}

void Supervision::OnTimer() {
  const absl::Time now = clock_->Now();
  if (blame_at_ <= now) Blame();
  if (noticed() && !finished_) AdvanceNotice();
  if (escalate_at_ <= now) SignalAll(last_signal_ == SIGINT ? SIGTERM : SIGKILL);
  if (ending()) return Look();
  for (size_t i = 0; i < tasks_.size(); ++i) {
    TaskRecord& record = tasks_[i];
    const int task = static_cast<int>(i);
    if (record.state == RunState::kRestarting && record.start_at <= now && record.gone) {
      if (record.keeper_ready) {
        StartProgram(task);
      } else if (!record.keeper_asked) {
        record.keeper_asked = true;
        Do(Action::Kind::kStartKeeper, task);
      }
    }
    if (MayCondemn(record) && record.suspended_since + suspend_limit_ <= now) {
      record.condemned = true;
      Do(Action::Kind::kKill, task);
    }
  }
}

absl::Time Supervision::next_timer() const {
  absl::Time next = std::min(blame_at_, escalate_at_);
  if (noticed() && !finished_) next = std::min({next, notice_.chief_at, notice_.servers_at});
  if (ending()) return next;
  for (const TaskRecord& record : tasks_) {
    if (record.state == RunState::kRestarting && record.gone && (record.keeper_ready || !record.keeper_asked))
      next = std::min(next, record.start_at);
    if (MayCondemn(record)) next = std::min(next, record.suspended_since + suspend_limit_);
  }
  return next;
}

void Supervision::Look() {
  const auto all = [&](auto holds) { return std::all_of(tasks_.begin(), tasks_.end(), holds); };
  if (!ending() && failures_.empty() && (job_state_ == RunState::kStarting || job_state_ == RunState::kRestarting) &&
      all([](const TaskRecord& t) { return t.state == RunState::kRunning || t.state == RunState::kSucceeded; })) {
    MoveJob(RunEvent::kUp);
  }
  // When all tasks that the job waits for are done, those that serve are no longer needed, even if one has just failed.
  if (!ending() && all_keepers_ready_ &&
      all([](const TaskRecord& t) { return t.serves || t.state == RunState::kSucceeded; }))
    return End(Ending::kSucceeded, "", 0, SIGTERM);
  if (noticed() && !finished_) AdvanceNotice();
  if (finished_ || !ending() || !all([](const TaskRecord& t) { return IsTerminal(t.state) && t.gone; })) return;
  finished_ = true;
  escalate_at_ = absl::InfiniteFuture();
  if (noticed()) JudgeNotice();
  MoveJob(ending_ == Ending::kSucceeded ? RunEvent::kSucceed
          : ending_ == Ending::kFailed  ? RunEvent::kFail
          : ending_ == Ending::kLost    ? RunEvent::kLose
                                        : RunEvent::kStop);
  Do(Action::Kind::kFinish, -1, code_, cause_);
}

std::vector<Action> Supervision::Take() { return std::exchange(actions_, {}); }

}  // namespace millrace::launch
