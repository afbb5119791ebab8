#include "millrace/launch/keeper_rules.h"

#include <signal.h>

#include <algorithm>
#include <utility>

#include "millrace/train/progress.h"

namespace millrace::launch {
namespace {

constexpr absl::Duration kBetweenKills = absl::Milliseconds(20);
constexpr absl::Duration kGiveUp = absl::Seconds(10);
// A scheduler signals every process of a job, and some in two ways: what comes within this time is one notice.
constexpr absl::Duration kOneNotice = absl::Seconds(2);

}  // namespace

KeeperRules::KeeperRules(const KeeperRulesOptions& options, Clock* clock, TaskProcesses* processes, Send send)
    : options_(options), clock_(clock), processes_(processes), send_(std::move(send)), heard_(clock->Now()) {}

void KeeperRules::OnHeard() {
  heard_ = clock_->Now();
  paused_ = false;
}

void KeeperRules::OnFrame(const KeeperFrame& frame) {
  switch (frame.kind) {
    case KeeperFrameKind::kStart: {
      const StatusOr<StartFrame> start = StartFrame::Decode(frame.body);
      if (!start.ok() || running_) return OnLauncherGone();
      return Start(*start);
    }
    case KeeperFrameKind::kSignal: {
      const StatusOr<NumbersAndText> number = DecodeNumbers(frame.body, 1);
      if (!number.ok() || number->numbers[0] < 1 || number->numbers[0] >= NSIG) return OnLauncherGone();
      // Not yet reaped, so the process group still belongs to the program.
      if (program_ == 0) return;
      processes_->SignalProgram(static_cast<int>(number->numbers[0]));
      ordered_ |= number->numbers[0] == SIGTERM;
      // A suspended process would not react to the signal.
      if (number->numbers[0] != SIGSTOP) processes_->SignalProgram(SIGCONT);
      // A launcher that suspends the job suspends itself next, so its silence is expected.
      paused_ = number->numbers[0] == SIGSTOP;
      return;
    }
    case KeeperFrameKind::kKill:
      if (running_) EndTree(/*now=*/true);
      return;
    case KeeperFrameKind::kFinish:
      if (const StatusOr<NumbersAndText> code = DecodeNumbers(frame.body, 1); code.ok())
        finish_ = static_cast<int>(code->numbers[0] & 0xff);
      return;
    default:
      return;  // kPing
  }
}

void KeeperRules::Start(const StartFrame& start) {
  NumbersAndText error;
  const int64_t pid = processes_->Start(start, &error);
  if (pid == 0) return send_(KeeperFrameKind::kNotStarted, EncodeNumbers(error.numbers, error.text));
  program_ = pid;
  running_ = true;
  ordered_ = false;
  ending_ = Ending::kNo;
  end_at_ = give_up_at_ = absl::InfiniteFuture();
  send_(KeeperFrameKind::kStarted, EncodeNumbers({pid}));
}

void KeeperRules::OnNotice(int signal, bool passed_on) {
  const absl::Time now = clock_->Now();
  const bool first = std::min(noticed_, guard_noticed_) == absl::InfiniteFuture();
  absl::Time& before = passed_on ? guard_noticed_ : noticed_;
  if (now >= before + kOneNotice) return OnLauncherGone();
  before = std::min(before, now);
  if (!first) return;
  send_(KeeperFrameKind::kProgress, FormatProgress({.notice = "given", .signal = signal}));
}

void KeeperRules::OnProgress(absl::string_view line) {
  send_(KeeperFrameKind::kProgress, line);
  if (!ordered_ || program_ == 0) return;
  if (const StatusOr<TrainingProgress> word = ParseProgress(line); word.ok() && word->notice == "given")
    processes_->RepeatOrder();
}

void KeeperRules::OnSuspended(int signal) { send_(KeeperFrameKind::kSuspended, EncodeNumbers({signal})); }

void KeeperRules::OnExited(ExitStatus exit) {
  program_ = 0;
  // Sends the program's output before its exit status, so that the launcher knows its last words.
  processes_->SendOutput(/*last=*/false);
  send_(KeeperFrameKind::kExited, EncodeNumbers({exit.code, exit.signal}));
  if (ending_ == Ending::kNo) EndTree(/*now=*/false);
}

void KeeperRules::OnLauncherGone() {
  if (launcher_gone_) return;
  launcher_gone_ = true;
  processes_->Release();
  if (running_) EndTree(/*now=*/false);
}

void KeeperRules::EndTree(bool now) {
  if (now || ending_ == Ending::kKilling) {
    ending_ = Ending::kKilling;
    if (give_up_at_ == absl::InfiniteFuture()) give_up_at_ = clock_->Now() + kGiveUp;
    processes_->SignalAll(SIGKILL);
    end_at_ = clock_->Now() + kBetweenKills;
    return;
  }
  if (ending_ == Ending::kAsked) return;
  ending_ = Ending::kAsked;
  if (processes_->SignalAll(SIGTERM) > 0) processes_->SignalAll(SIGCONT);
  end_at_ = clock_->Now() + options_.grace;
}

void KeeperRules::LookWhetherGone() {
  if (!running_ || program_ != 0 || ending_ == Ending::kNo) return;
  // The ends of adopted children are reported; the processes below them are polled.
  if (clock_->Now() < give_up_at_ && processes_->AnyLeft()) return;
  processes_->SendOutput(/*last=*/true);
  running_ = false;
  end_at_ = give_up_at_ = absl::InfiniteFuture();
  send_(KeeperFrameKind::kGone, "");
}

void KeeperRules::OnTimer() {
  const absl::Time now = clock_->Now();
  if (!paused_ && now - heard_ >= options_.silence) OnLauncherGone();
  if (running_ && end_at_ <= now) EndTree(/*now=*/true);
  if (running_) LookWhetherGone();
}

absl::Time KeeperRules::next_timer() const {
  absl::Time next = std::min(end_at_, give_up_at_);
  if (options_.silence != absl::InfiniteDuration() && !launcher_gone_ && !paused_)
    next = std::min(next, heard_ + options_.silence);
  return next;
}

}  // namespace millrace::launch
