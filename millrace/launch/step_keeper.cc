#include "millrace/launch/step_keeper.h"

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "millrace/launch/keeper.h"
#include "millrace/launch/keeper_link.h"
#include "millrace/launch/meeting/choose_guard.h"
#include "millrace/launch/meeting/join_meeting.h"
#include "millrace/launch/scheduler_step.h"

namespace millrace::launch {
namespace {

constexpr absl::Duration kStepJoins = absl::Seconds(30);

StatusOr<KeeperOptions> JoinFromStep(const std::string& tasks, JoinedMeeting* joined) {
  const Surroundings here = Surroundings::OfThisProcess();
  Variables variables(here.environment);
  MR_ASSIGN_OR_RETURN(StepMeeting meeting, DecodeMeeting(variables.Text(kMeetingVariable)));
  const std::vector<std::string> numbers = absl::StrSplit(tasks, ',');
  MR_ASSIGN_OR_RETURN(const int rank, variables.Number("SLURM_PROCID"));
  int task;
  if (rank >= static_cast<int>(numbers.size()) || !absl::SimpleAtoi(numbers[rank], &task))
    return InvalidArgument("rank ", rank, " has no task in '", tasks, "'");
  MeetingHello hello = {.rank = task, .size = meeting.size, .jobs = meeting.jobs};
  hello.has_gpus = variables.Has("CUDA_VISIBLE_DEVICES");
  hello.gpus = variables.Text("CUDA_VISIBLE_DEVICES");
  MR_ASSIGN_OR_RETURN(meeting.point.guard, ChooseGuard(here.environment, meeting.point.label));
  MR_ASSIGN_OR_RETURN(*joined, JoinMeeting(meeting.point, hello, kStepJoins));
  return KeeperOptions{.in = joined->socket.get(),
                       .out = joined->socket.get(),
                       .silence = RemoteOptions().silence,
                       .claim = absl::StrCat(meeting.point.label, "/", task),
                       .channel = joined->channel,
                       .received = joined->received};
}

}  // namespace

int RunStepKeeper(const std::string& tasks) {
  JoinedMeeting joined;
  const StatusOr<KeeperOptions> options = JoinFromStep(tasks, &joined);
  if (!options.ok()) {
    fprintf(stderr, "millrace: %s\n", std::string(options.status().message()).c_str());
    return 1;
  }
  return RunKeeper(*options);
}

}  // namespace millrace::launch
