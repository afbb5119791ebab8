#include "millrace/launch/run_state.h"

#include "absl/types/span.h"

namespace millrace::launch {
namespace {

struct Transition {
  RunState from;
  RunEvent event;
  RunState to;
};

using S = RunState;
using E = RunEvent;

// docs/launch.md shows both tables; a test compares them.
constexpr Transition kTask[] = {
    {S::kPending, E::kStart, S::kStarting},    {S::kPending, E::kLose, S::kLost},
    {S::kPending, E::kStop, S::kStopped},      {S::kStarting, E::kUp, S::kRunning},
    {S::kStarting, E::kFail, S::kFailed},      {S::kStarting, E::kRetry, S::kRestarting},
    {S::kStarting, E::kLose, S::kLost},        {S::kStarting, E::kStop, S::kStopped},
    {S::kRunning, E::kSucceed, S::kSucceeded}, {S::kRunning, E::kFail, S::kFailed},
    {S::kRunning, E::kRetry, S::kRestarting},  {S::kRunning, E::kLose, S::kLost},
    {S::kRunning, E::kStop, S::kStopped},      {S::kRestarting, E::kStart, S::kStarting},
    {S::kRestarting, E::kLose, S::kLost},      {S::kRestarting, E::kStop, S::kStopped},
};

constexpr Transition kJob[] = {
    {S::kPending, E::kStart, S::kStarting},
    {S::kPending, E::kFail, S::kFailed},
    {S::kPending, E::kLose, S::kLost},
    {S::kPending, E::kStop, S::kStopped},
    {S::kStarting, E::kUp, S::kRunning},
    {S::kStarting, E::kRetry, S::kRestarting},
    {S::kStarting, E::kSucceed, S::kSucceeded},
    {S::kStarting, E::kFail, S::kFailed},
    {S::kStarting, E::kLose, S::kLost},
    {S::kStarting, E::kStop, S::kStopped},
    {S::kRunning, E::kRetry, S::kRestarting},
    {S::kRunning, E::kSucceed, S::kSucceeded},
    {S::kRunning, E::kFail, S::kFailed},
    {S::kRunning, E::kLose, S::kLost},
    {S::kRunning, E::kStop, S::kStopped},
    {S::kRestarting, E::kUp, S::kRunning},
    {S::kRestarting, E::kSucceed, S::kSucceeded},
    {S::kRestarting, E::kFail, S::kFailed},
    {S::kRestarting, E::kLose, S::kLost},
    {S::kRestarting, E::kStop, S::kStopped},
};

StatusOr<RunState> Next(absl::Span<const Transition> table, const char* whose, RunState state, RunEvent event) {
  for (const Transition& transition : table) {
    if (transition.from == state && transition.event == event) return transition.to;
  }
  return FailedPrecondition(whose, " that is ", StateName(state), " cannot ", EventName(event));
}

}  // namespace

bool IsTerminal(RunState state) {
  return state == S::kSucceeded || state == S::kFailed || state == S::kLost || state == S::kStopped;
}

StatusOr<RunState> NextTaskState(RunState state, RunEvent event) { return Next(kTask, "a task", state, event); }
StatusOr<RunState> NextJobState(RunState state, RunEvent event) { return Next(kJob, "a job", state, event); }

const char* StateName(RunState state) {
  switch (state) {
    case S::kPending:
      return "pending";
    case S::kStarting:
      return "starting";
    case S::kRunning:
      return "running";
    case S::kRestarting:
      return "restarting";
    case S::kSucceeded:
      return "succeeded";
    case S::kFailed:
      return "failed";
    case S::kLost:
      return "lost";
    case S::kStopped:
      return "stopped";
  }
  return "?";
}

const char* EventName(RunEvent event) {
  switch (event) {
    case E::kStart:
      return "start";
    case E::kUp:
      return "come up";
    case E::kSucceed:
      return "succeed";
    case E::kFail:
      return "fail";
    case E::kRetry:
      return "retry";
    case E::kLose:
      return "be lost";
    case E::kStop:
      return "stop";
  }
  return "?";
}

}  // namespace millrace::launch
