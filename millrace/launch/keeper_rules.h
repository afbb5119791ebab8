// Decides what a keeper does: starts its task's program, ends it and all that it started, and reports to the launcher.
//
// Reactions to the launcher's frames, to the ends of processes and to timers on an injected clock. The keeper connects
// them to real processes and pipes, the tests to simulated ones. Not thread-safe.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "millrace/base/clock.h"
#include "millrace/launch/exit_status.h"
#include "millrace/launch/keeper_frame.h"

namespace millrace::launch {

// The program of a task and all processes that descend from it, on the keeper's machine.
class TaskProcesses {
 public:
  virtual ~TaskProcesses() = default;
  // Starts the program and returns its pid; 0 if that failed, and `error` then has errno and the reason.
  virtual int64_t Start(const StartFrame& start, NumbersAndText* error) = 0;
  // Signals the program's process group. The program runs.
  virtual void SignalProgram(int signal) = 0;
  // Sends the program SIGTERM once more, so that it does not count as a second one (base/notice.h).
  virtual void RepeatOrder() {}
  // Signals all processes that are left; returns how many there were.
  virtual int SignalAll(int signal) = 0;
  virtual bool AnyLeft() = 0;
  // Sends what the processes have written. With `last`, nothing more is read from them.
  virtual void SendOutput(bool last) = 0;
  // The launcher is gone: nothing that it was promised is needed any more.
  virtual void Release() = 0;
};

struct KeeperRulesOptions {
  // How long the launcher may be silent before it counts as gone; infinite if its end is always noticed.
  absl::Duration silence = absl::InfiniteDuration();
  // The time between SIGTERM and SIGKILL when the keeper itself ends processes.
  absl::Duration grace = absl::Seconds(2);
};

class KeeperRules {
 public:
  using Send = std::function<void(KeeperFrameKind kind, absl::string_view body)>;

  // `processes` and `clock` must outlive it. Frames are sent only while the launcher is there.
  KeeperRules(const KeeperRulesOptions& options, Clock* clock, TaskProcesses* processes, Send send);

  // Something came from the launcher. Call it before OnFrame.
  void OnHeard();
  // A frame that a launcher does not send ends the task, as the launcher's end does.
  void OnFrame(const KeeperFrame& frame);
  // The launcher has ended, or the keeper itself is told to end.
  void OnLauncherGone();
  // The keeper itself got a notice, as when a scheduler signals all processes of a job. The launcher gives the whole
  // job its notice then. The second time, a while later, the keeper ends; one that its guard has passed on and one of
  // its own may be the same.
  void OnNotice(int signal, bool passed_on = false);
  // A line of the program's own to the launcher. One that says that somebody else has given it a notice, although it
  // has the launcher's order, has seen only one signal of two.
  void OnProgress(absl::string_view line);
  // The program was suspended by `signal`; 0: it continues.
  void OnSuspended(int signal);
  void OnExited(ExitStatus exit);
  // Some process has ended.
  void LookWhetherGone();
  void OnTimer();
  absl::Time next_timer() const;

  bool launcher_gone() const { return launcher_gone_; }
  // Nothing is left to do.
  bool over() const { return launcher_gone_ && !running_; }
  int64_t program() const { return program_; }
  // The exit code that the launcher wants; nullopt if it ended without a word.
  std::optional<int> finish() const { return finish_; }

 private:
  enum class Ending { kNo, kAsked, kKilling };

  void Start(const StartFrame& start);
  // Ends all descendants: with SIGTERM first, then SIGKILL, or with SIGKILL immediately if `now`.
  void EndTree(bool now);

  const KeeperRulesOptions options_;
  Clock* const clock_;
  TaskProcesses* const processes_;
  const Send send_;
  absl::Time heard_;
  bool launcher_gone_ = false;
  bool paused_ = false;
  std::optional<int> finish_;
  absl::Time noticed_ = absl::InfiniteFuture(), guard_noticed_ = absl::InfiniteFuture();  // the first times
  bool ordered_ = false;  // the launcher has told the program to end
  int64_t program_ = 0;   // not yet reaped
  bool running_ = false;  // from its start until no descendant is left
  Ending ending_ = Ending::kNo;
  absl::Time end_at_ = absl::InfiniteFuture();  // when to kill next
  absl::Time give_up_at_ = absl::InfiniteFuture();
};

}  // namespace millrace::launch
