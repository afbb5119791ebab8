#include "millrace/launch/job_state.h"

#include <unistd.h>

#include <cstdlib>

#include "absl/strings/str_format.h"
#include "millrace/base/affinity.h"

namespace millrace::launch {
namespace {

// How long the same signal may take to reach all processes of a job.
constexpr absl::Duration kOneSignal = absl::Seconds(2);

}  // namespace

JobState::JobState(const LauncherOptions& options)
    : options(options),
      began(Clock::Real()->Now()),
      supervision(options.job, Clock::Real()),
      output(STDOUT_FILENO, STDERR_FILENO, options.live),
      hang(options.hang, began) {
  const std::vector<int> places = PlaceTasks(options.job).value();
  for (const TaskRecord& record : supervision.tasks()) {
    const int number = static_cast<int>(tasks.size());
    LaunchedTask task;
    task.name = record.name.ToString();
    task.prefix = options.colour ? absl::StrFormat("\033[%dm[%s]\033[0m ", TaskColour(number), task.name)
                                 : absl::StrFormat("[%s] ", task.name);
    task.host_address = task.claim.host = "localhost";
    task.claim.bound = options.job.bind_workers && GroupOf(options.job, record.name.job).trains();
    if (options.meeting.has_value() && options.meeting->own_task >= 0) {
      // Its keeper says where it is.
      const bool own = number == options.meeting->own_task;
      task.prefix.clear();
      task.host_address = own ? options.meeting->address : "";
      task.claim.host = task.host_address;
      if (const char* gpus = getenv("CUDA_VISIBLE_DEVICES"); own && gpus != nullptr) task.gpus = gpus;
    } else if (places[number] >= 0) {
      task.host = options.job.hosts[places[number]].name;
      task.host_address = options.job.hosts[places[number]].Address();
      task.claim.host = task.host;
    } else if (task.claim.bound) {
      task.claim.cores = NeighboursTogether(AllowedCores());  // inherited by the keepers
    }
    tasks.push_back(std::move(task));
  }
}

bool JobState::IsSameSignal() {
  // A scheduler sends one signal to all processes of the job, and some in two ways, which is not a second one.
  if (options.meeting.has_value() && Now() - interrupted < kOneSignal) return true;
  interrupted = Now();
  return false;
}

void JobState::OnInterrupt(int signal) {
  if (!IsSameSignal()) supervision.OnInterrupt(signal);
}

void JobState::OnNotice(int signal) {
  if (!IsSameSignal()) supervision.OnNotice(signal);
}

}  // namespace millrace::launch
