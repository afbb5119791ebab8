// What is done about what happens to the tasks of a job.
//
// Pure reactions on an injected clock: events come in, actions come out, and nothing here starts a process or a thread. launcher.h gives it real keepers;
// the tests give it a virtual clock. One thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "millrace/base/clock.h"
#include "millrace/launch/exit_status.h"
#include "millrace/launch/job_spec.h"
#include "millrace/launch/run_state.h"

namespace millrace::launch {

// What is to be done now.
struct Action {
  enum class Kind {
    kStartKeeper,   // of `task`; answered by OnKeeperReady or OnKeeperLost
    kStartProgram,  // of `task`; answered by OnStarted or OnNotStarted
    kSignal,        // `number` to the program of `task`
    kKill,          // everything of `task`
    kTell,          // `text` to the user: something went wrong
    kFinish,        // the job is over: `number` is the exit code, `text` the line that says why, empty after success
  };
  Kind kind;
  int task = -1;
  int number = 0;
  std::string text = {};
  friend bool operator==(const Action&, const Action&) = default;
};

// A task as it stands.
struct TaskRecord {
  TaskName name;
  RestartPolicy restart = {};
  bool serves = false;
  RunState state = RunState::kPending;
  absl::Time since = absl::InfinitePast();  // of the state
  int64_t pid = 0;                          // of the program that runs or ran last
  int restarts = 0;
  std::optional<int64_t> step = std::nullopt;
  std::optional<ExitStatus> exit = std::nullopt;  // of the last program that ended
  int suspended_by = 0;                           // the signal, while it is suspended
  absl::Time suspended_since = absl::InfinitePast();
  bool condemned = false;                         // killed because it was suspended for too long
  bool keeper_asked = false, keeper_ready = false;
  bool gone = true;  // nothing of it runs
  absl::Time start_at = absl::InfiniteFuture();  // when it is to be restarted
};

class Supervision {
 public:
  Supervision(const JobSpec& job, Clock* clock);

  // Asks for all keepers. Programs start when all of them are ready, since only then all addresses are known.
  void Begin();

  void OnKeeperReady(int task);
  void OnKeeperLost(int task, absl::string_view why);
  void OnStarted(int task, int64_t pid);
  // `why`: "./program: No such file or directory". Not restarted: it would fail again.
  void OnNotStarted(int task, absl::string_view why, int code);
  void OnStep(int task, int64_t step) { tasks_[task].step = step; }
  // By `signal`; 0: it goes on.
  void OnSuspended(int task, int signal);
  // `last_words`: the last line that it wrote to stderr, may be empty.
  void OnExited(int task, ExitStatus exit, absl::string_view last_words);
  // After OnExited: no process that came from the program is left.
  void OnGone(int task);
  // The launcher got SIGINT, SIGTERM or SIGHUP. The second time everything is killed.
  void OnInterrupt(int signal);
  // Before any program was started: the job cannot be as its user wants it. A mistake in the flags, seen late.
  void OnRefused(absl::string_view why);
  // The user's limit for hanging is reached.
  void OnHang(absl::string_view cause);
  void OnTimer();
  // When OnTimer is to be called next.
  absl::Time next_timer() const;

  // What is to be done since the last call, in order.
  std::vector<Action> Take();

  const std::vector<TaskRecord>& tasks() const { return tasks_; }
  RunState job_state() const { return job_state_; }
  absl::Time job_since() const { return job_since_; }
  // Why the job is being ended; empty while it is not, and when it ends well.
  const std::string& cause() const { return cause_; }
  bool ending() const { return ending_ != Ending::kNo; }
  bool finished() const { return finished_; }

 private:
  enum class Ending { kNo, kSucceeded, kFailed, kLost, kStopped };
  // A failure that may be the root of all others.
  struct Failure {
    int task;
    RunEvent event;  // kFail or kLose
    std::string text;  // after the task's name
    int code;
    bool by_signal;  // that nobody raises for the failure of another task
  };

  void Do(Action::Kind kind, int task = -1, int number = 0, std::string text = {}) { actions_.push_back({kind, task, number, std::move(text)}); }
  void Move(int task, RunEvent event);
  void MoveJob(RunEvent event);
  void StartProgram(int task);
  // A failure of a task that was not told to end: restarts it, or fails the job.
  void Broke(Failure failure, bool may_restart);
  // The line for the first failure that is no consequence of another.
  void Blame();
  void End(Ending ending, std::string cause, int code, int signal);
  void SignalAll(int signal);
  // After any change: is the job up, done, over?
  void Look();
  std::string AtStep(int task) const;
  std::string Tail() const;

  Clock* const clock_;
  const absl::Duration grace_, suspend_limit_;
  std::vector<TaskRecord> tasks_;
  RunState job_state_ = RunState::kPending;
  absl::Time job_since_;
  bool all_keepers_ready_ = false;
  std::vector<Failure> failures_;
  absl::Time blame_at_ = absl::InfiniteFuture();
  Ending ending_ = Ending::kNo;
  bool interrupted_ = false;
  std::string cause_;
  int code_ = 0;
  int last_signal_ = 0;
  absl::Time escalate_at_ = absl::InfiniteFuture();
  bool finished_ = false;
  std::vector<Action> actions_;
};

}  // namespace millrace::launch
