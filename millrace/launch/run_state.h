// The states of a task and of the job, and how they follow one another.
//
// Tasks and the job have the same states. A task's state tells of its program; the job's, of all of them. Succeeded, failed, lost and stopped are
// terminal: nothing follows them.
#pragma once

#include <array>
#include <string>

#include "millrace/base/status.h"

namespace millrace::launch {

enum class RunState {
  kPending,     // nothing was started yet; a task waits for its keeper, the job for all keepers
  kStarting,    // the program is being started; the job: not all programs run yet
  kRunning,     // the program runs; the job: all do, or have done their work
  kRestarting,  // the program failed and will be started again after a pause; the job: that is so of a task
  kSucceeded,   // ended with code 0; the job: all tasks that it waits for did
  kFailed,      // ended otherwise, and is not restarted; the job: because of such a task
  kLost,        // nobody can tell: the keeper or the way to it is gone; the job: because of such a task
  kStopped,     // ended because it was told to: the job was over, had failed, or was interrupted
};

enum class RunEvent {
  kStart,    // the program is started
  kUp,       // it runs; the job: every task does
  kSucceed,  // it ended with code 0
  kFail,     // it ended otherwise, or could not be started, and is not restarted
  kRetry,    // the same, and is restarted
  kLose,     // its keeper is gone
  kStop,     // it ended on demand, or was never started
};

inline constexpr std::array kRunStates = {RunState::kPending,   RunState::kStarting, RunState::kRunning, RunState::kRestarting,
                                          RunState::kSucceeded, RunState::kFailed,   RunState::kLost,    RunState::kStopped};
inline constexpr std::array kRunEvents = {RunEvent::kStart, RunEvent::kUp,   RunEvent::kSucceed, RunEvent::kFail,
                                          RunEvent::kRetry, RunEvent::kLose, RunEvent::kStop};

bool IsTerminal(RunState state);
// FAILED_PRECONDITION for what cannot follow.
StatusOr<RunState> NextTaskState(RunState state, RunEvent event);
StatusOr<RunState> NextJobState(RunState state, RunEvent event);

// "pending", "starting", ...
const char* StateName(RunState state);
const char* EventName(RunEvent event);

}  // namespace millrace::launch
