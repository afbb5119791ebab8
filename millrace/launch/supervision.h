// Decides how to react to events of the tasks of a job: start, restart, stop, report.
//
// Pure logic on an injected clock: events come in, actions come out, and nothing here starts a process or a thread. The
// launcher connects it to real keepers, the tests to a virtual clock. Not thread-safe.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "millrace/base/clock.h"
#include "millrace/launch/exit_status.h"
#include "millrace/launch/job_spec.h"
#include "millrace/launch/run_state.h"
#include "millrace/train/progress.h"

namespace millrace::launch {

// Something that the launcher has to do.
struct Action {
  enum class Kind {
    kStartKeeper,   // start the keeper of `task`; answered by OnKeeperReady or OnKeeperLost
    kStartProgram,  // start the program of `task`; answered by OnStarted or OnNotStarted
    kSignal,        // send signal `number` to the program of `task`
    kKill,          // kill all processes of `task`
    kTell,          // show `text` to the user: something went wrong
    kFinish,        // the job is over: `number` is the exit code, `text` the reason, empty after success
  };
  Kind kind;
  int task = -1;
  int number = 0;
  std::string text = {};
  friend bool operator==(const Action&, const Action&) = default;
};

// The current state of a task.
struct TaskRecord {
  TaskName name;
  RestartPolicy restart = {};
  bool serves = false;
  RunState state = RunState::kPending;
  absl::Time since = absl::InfinitePast();  // when it entered the state
  int64_t pid = 0;                          // of the program that runs or ran last
  int restarts = 0;
  std::optional<int64_t> step = std::nullopt;
  std::optional<ExitStatus> exit = std::nullopt;  // of the last program that ended
  int suspended_by = 0;                           // the signal that suspended it; 0 while it is not suspended
  absl::Time suspended_since = absl::InfinitePast();
  bool condemned = false;  // killed because it was suspended for too long
  bool keeper_asked = false, keeper_ready = false;
  bool gone = true;                              // none of its processes is left
  bool makes_steps = true;                       // cleared when it says, after a notice, that it makes no more
  bool follows = false;                          // it says that its steps end with the chief's
  absl::Time start_at = absl::InfiniteFuture();  // when to restart it
};

class Supervision {
 public:
  Supervision(const JobSpec& job, Clock* clock);

  // Starts all keepers. Programs start when all keepers are ready, since only then all addresses are known.
  void Begin();

  void OnKeeperReady(int task);
  void OnKeeperLost(int task, absl::string_view why);
  void OnStarted(int task, int64_t pid);
  // `why` is like "./program: No such file or directory". The task is not restarted, since it would fail again.
  void OnNotStarted(int task, absl::string_view why, int code);
  void OnStep(int task, int64_t step) { tasks_[task].step = step; }
  // The program was suspended by `signal`, or continues if `signal` is 0.
  void OnSuspended(int task, int signal);
  // `last_words` is the last line that it wrote to stderr; may be empty.
  void OnExited(int task, ExitStatus exit, absl::string_view last_words);
  // Called after OnExited, when no descendant of the program is left.
  void OnGone(int task);
  // The launcher got SIGINT or SIGHUP. The second call, also after a notice, kills everything.
  void OnInterrupt(int signal);
  // The launcher got a notice that the job will be ended: it stops in an order in which nothing is lost, within
  // `grace`. First the tasks other than the chief make their last step; then the chief, which saves; when their
  // programs have ended, or the grace is nearly over, those that serve. A second call kills everything.
  void OnNotice(int signal);
  // A task's word about a notice (train/progress.h). If it was given one by somebody else, the whole job is.
  void OnNoticeWord(int task, const TrainingProgress& word);
  // The job cannot be run as specified: an error in the flags that is only found once the machines are known. Called
  // before any program is started.
  void OnRefused(absl::string_view why);
  // The user's limit for hanging is reached.
  void OnHang(absl::string_view cause);
  void OnTimer();
  // When to call OnTimer next.
  absl::Time next_timer() const;

  // The actions that became due since the last call, in order.
  std::vector<Action> Take();

  const std::vector<TaskRecord>& tasks() const { return tasks_; }
  RunState job_state() const { return job_state_; }
  // Why the job is being ended; empty while it is not, and on success.
  const std::string& cause() const { return cause_; }
  bool ending() const { return ending_ != Ending::kNo; }
  // Whether a notice ends the job.
  bool noticed() const { return notice_.signal != 0; }
  bool finished() const { return finished_; }

 private:
  enum class Ending { kNo, kSucceeded, kFailed, kLost, kStopped };
  // A failure that may be the root cause of the others.
  struct Failure {
    int task;
    RunEvent event;    // kFail or kLose
    std::string text;  // follows the task's name in messages
    int code;
    bool by_signal;  // by a signal that is not a reaction to another task's failure
  };

  void Do(Action::Kind kind, int task = -1, int number = 0, std::string text = {}) {
    actions_.push_back({kind, task, number, std::move(text)});
  }
  void Move(int task, RunEvent event);
  void MoveJob(RunEvent event);
  void StartProgram(int task);
  // Handles the failure of a task that was not told to end: restarts it, or fails the job.
  void Broke(Failure failure, bool may_restart);
  // Reports the first failure that is not a consequence of another.
  void Blame();
  void End(Ending ending, std::string cause, int code, int signal);
  void SignalAll(int signal);
  // Called after any change: checks whether the job is running, done or over.
  void Look();
  void BeginNotice(int signal);
  // Goes to the next part of a notice's order if it is due.
  void AdvanceNotice();
  // Whether the task is to get signals: a notice has its order.
  bool IsItsTurn(int task) const;
  // Whether its last program was killed by this signal.
  bool EndedBy(int signal, int task) const;
  // The last line and the exit code of a job that a notice has ended.
  void JudgeNotice();
  std::string AtStep(int task) const;
  std::string Tail() const;

  Clock* const clock_;
  const absl::Duration grace_, suspend_limit_;
  std::vector<TaskRecord> tasks_;
  RunState job_state_ = RunState::kPending;
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

  // A notice that ends the job.
  struct NoticeState {
    enum class Turn { kOthers, kChief, kServers };
    int signal = 0;       // 0: there is none
    bool heard = false;   // a program has said something about it
    bool killed = false;  // by a second signal
    Turn turn = Turn::kOthers;
    absl::Time chief_at = absl::InfiniteFuture(), servers_at = absl::InfiniteFuture();  // at the latest
    std::optional<TrainingProgress> outcome = std::nullopt;  // "saved", "failed", or "ready" of the chief
  };
  int chief_ = -1;  // the task that saves; -1: there is none
  NoticeState notice_;
};

}  // namespace millrace::launch
