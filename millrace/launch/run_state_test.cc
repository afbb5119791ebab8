#include "millrace/launch/run_state.h"

#include <map>

#include "gtest/gtest.h"

namespace millrace::launch {
namespace {

using S = RunState;
using E = RunEvent;
using Table = std::map<std::pair<S, E>, S>;

// The tables a second time, by state, so that a mistake in either is noticed.
const Table& TaskTable() {
  static const Table* table = new Table{
      {{S::kPending, E::kStart}, S::kStarting},    {{S::kPending, E::kLose}, S::kLost},
      {{S::kPending, E::kStop}, S::kStopped},      {{S::kStarting, E::kUp}, S::kRunning},
      {{S::kStarting, E::kFail}, S::kFailed},      {{S::kStarting, E::kRetry}, S::kRestarting},
      {{S::kStarting, E::kLose}, S::kLost},        {{S::kStarting, E::kStop}, S::kStopped},
      {{S::kRunning, E::kSucceed}, S::kSucceeded}, {{S::kRunning, E::kFail}, S::kFailed},
      {{S::kRunning, E::kRetry}, S::kRestarting},  {{S::kRunning, E::kLose}, S::kLost},
      {{S::kRunning, E::kStop}, S::kStopped},      {{S::kRestarting, E::kStart}, S::kStarting},
      {{S::kRestarting, E::kLose}, S::kLost},      {{S::kRestarting, E::kStop}, S::kStopped},
  };
  return *table;
}

const Table& JobTable() {
  static const Table* table = new Table{
      {{S::kPending, E::kStart}, S::kStarting},
      {{S::kPending, E::kFail}, S::kFailed},
      {{S::kPending, E::kLose}, S::kLost},
      {{S::kPending, E::kStop}, S::kStopped},
      {{S::kStarting, E::kUp}, S::kRunning},
      {{S::kStarting, E::kRetry}, S::kRestarting},
      {{S::kStarting, E::kSucceed}, S::kSucceeded},
      {{S::kStarting, E::kFail}, S::kFailed},
      {{S::kStarting, E::kLose}, S::kLost},
      {{S::kStarting, E::kStop}, S::kStopped},
      {{S::kRunning, E::kRetry}, S::kRestarting},
      {{S::kRunning, E::kSucceed}, S::kSucceeded},
      {{S::kRunning, E::kFail}, S::kFailed},
      {{S::kRunning, E::kLose}, S::kLost},
      {{S::kRunning, E::kStop}, S::kStopped},
      {{S::kRestarting, E::kUp}, S::kRunning},
      {{S::kRestarting, E::kSucceed}, S::kSucceeded},
      {{S::kRestarting, E::kFail}, S::kFailed},
      {{S::kRestarting, E::kLose}, S::kLost},
      {{S::kRestarting, E::kStop}, S::kStopped},
  };
  return *table;
}

template <typename Next>
void CheckAll(const Table& table, Next next) {
  for (const S state : kRunStates) {
    for (const E event : kRunEvents) {
      SCOPED_TRACE(absl::StrCat(StateName(state), ", ", EventName(event)));
      const StatusOr<S> got = next(state, event);
      const auto wanted = table.find({state, event});
      if (wanted != table.end()) {
        ASSERT_TRUE(got.ok()) << got.status();
        EXPECT_EQ(*got, wanted->second);
      } else {
        ASSERT_FALSE(got.ok()) << StateName(*got);
        EXPECT_EQ(got.status().code(), absl::StatusCode::kFailedPrecondition);
        EXPECT_NE(got.status().message().find(StateName(state)), std::string::npos);
      }
    }
  }
}

TEST(RunState, TasksMoveAsTheirTableSaysAndNotOtherwise) { CheckAll(TaskTable(), NextTaskState); }
TEST(RunState, JobsMoveAsTheirTableSaysAndNotOtherwise) { CheckAll(JobTable(), NextJobState); }

TEST(RunState, NothingFollowsATerminalState) {
  for (const S state : kRunStates) {
    bool leaves = false;
    for (const E event : kRunEvents)
      leaves = leaves || NextTaskState(state, event).ok() || NextJobState(state, event).ok();
    EXPECT_EQ(leaves, !IsTerminal(state)) << StateName(state);
  }
}

}  // namespace
}  // namespace millrace::launch
