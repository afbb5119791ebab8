// The processes that start keepers within an allocation of a scheduler: `srun`.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "millrace/launch/meeting/meeting_point.h"

namespace millrace::launch {

// The command of one step: `srun` with its flags, which runs the keepers of `tasks` on `hosts`, in order, and tells
// them where to meet. `millrace` is the path of this program there.
std::vector<std::string> StepCommand(const std::vector<std::string>& srun, const std::string& millrace,
                                     const std::vector<int>& tasks, const std::vector<std::string>& hosts);

// What a keeper of a step has to know, as the value of kMeetingVariable. The secret is in kJobSecretVariable, which
// only the user's processes can read.
inline constexpr char kMeetingVariable[] = "MILLRACE_MEETING";
std::string EncodeMeeting(const MeetingPoint& point, int size, const std::string& jobs);
struct StepMeeting {
  MeetingPoint point;  // without a guard
  int size = 0;
  std::string jobs;
};
StatusOr<StepMeeting> DecodeMeeting(absl::string_view text);

// Single-threaded.
class SchedulerSteps {
 public:
  // Starts one. Fails if no process could be created.
  Status Start(const std::vector<std::string>& command, const std::vector<std::string>& environment,
               std::vector<int> tasks);
  // A child has ended. Calls `on_task` for each task of its step.
  void OnReaped(pid_t pid, int wait_status, absl::FunctionRef<void(int task, const std::string& why)> on_task);
  bool any() const { return !steps_.empty(); }
  void Signal(int signal) const;
  std::vector<pid_t> pids() const;

 private:
  struct Step {
    pid_t pid;
    std::vector<int> tasks;
  };
  std::vector<Step> steps_;
};

}  // namespace millrace::launch
