// The state machine of a task and of the job.
//
// Tasks and the job have the same states. A task's state is that of its program; the job's state summarises all tasks.
// Succeeded, failed, lost and stopped are terminal.
#pragma once

#include <array>
#include <string>

#include "millrace/base/status.h"

namespace millrace::launch {

enum class RunState {
  kPending,     // nothing was started yet: a task waits for its keeper, the job for all keepers
  kStarting,    // the program is being started; the job: not all programs run yet
  kRunning,     // the program runs; the job: every program runs or has succeeded
  kRestarting,  // the program failed and will be started again after a pause; the job: a task is restarting
  kSucceeded,   // ended with code 0; the job: all tasks that it waits for did
  kFailed,      // ended otherwise and is not restarted; the job: because of such a task
  kLost,        // unknown, because the keeper or the connection to it is gone; the job: because of such a task
  kStopped,     // ended on request: the job was over, had failed, or was interrupted
};

enum class RunEvent {
  kStart,    // the program is started
  kUp,       // it runs; the job: every task does
  kSucceed,  // it ended with code 0
  kFail,     // it ended otherwise, or could not be started, and is not restarted
  kRetry,    // as kFail, but it will be restarted
  kLose,     // its keeper is gone
  kStop,     // it ended on request, or was never started
};

inline constexpr std::array kRunStates = {RunState::kPending,    RunState::kStarting,  RunState::kRunning,
                                          RunState::kRestarting, RunState::kSucceeded, RunState::kFailed,
                                          RunState::kLost,       RunState::kStopped};
inline constexpr std::array kRunEvents = {RunEvent::kStart, RunEvent::kUp,   RunEvent::kSucceed, RunEvent::kFail,
                                          RunEvent::kRetry, RunEvent::kLose, RunEvent::kStop};

bool IsTerminal(RunState state);
// FAILED_PRECONDITION if the event cannot happen in that state.
StatusOr<RunState> NextTaskState(RunState state, RunEvent event);
StatusOr<RunState> NextJobState(RunState state, RunEvent event);

// "pending", "starting", ...
const char* StateName(RunState state);
const char* EventName(RunEvent event);

}  // namespace millrace::launch
