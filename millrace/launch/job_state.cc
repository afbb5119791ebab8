#include "millrace/launch/job_state.h"

#include <unistd.h>

#include "absl/strings/str_format.h"
#include "millrace/base/affinity.h"

namespace millrace::launch {

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
    if (places[number] >= 0) {
      task.host = options.job.hosts[places[number]].name;
      task.host_address = options.job.hosts[places[number]].Address();
      task.claim.host = task.host;
    } else if (task.claim.bound) {
      task.claim.cores = NeighboursTogether(AllowedCores());  // inherited by the keepers
    }
    tasks.push_back(std::move(task));
  }
}

}  // namespace millrace::launch
