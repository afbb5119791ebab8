#include "millrace/launch/allocation.h"

#include "millrace/launch/meeting/choose_guard.h"
#include "millrace/launch/place/node_list.h"

namespace millrace::launch {

StatusOr<std::optional<Allocation>> FindAllocation(const Surroundings& here) {
  Variables variables(here.environment);
  if (!variables.Has("SLURM_JOB_ID") || !variables.Has("SLURM_JOB_NODELIST") || InSlurmStep(here.environment))
    return std::nullopt;
  Allocation allocation = {.name = absl::StrCat("Slurm job ", variables.Text("SLURM_JOB_ID")),
                           .hosts = {},
                           .here = here.host_name,
                           .environment = here.environment};
  if (variables.Has("SLURM_HET_SIZE")) {
    return InvalidArgument(allocation.name,
                           " is heterogeneous: start the tasks with `srun --het-group=... millrace "
                           "place` instead of `millrace launch`, or give --scheduler none");
  }
  StatusOr<std::vector<std::string>> nodes = ExpandNodeList(variables.Text("SLURM_JOB_NODELIST"));
  if (!nodes.ok()) return WithPrefix("SLURM_JOB_NODELIST: ", nodes.status());
  StatusOr<std::vector<int>> slots = ExpandCounts(variables.Text("SLURM_TASKS_PER_NODE"));
  if (!slots.ok()) return WithPrefix("SLURM_TASKS_PER_NODE: ", slots.status());
  if (nodes->size() != slots->size()) {
    return InvalidArgument("SLURM_JOB_NODELIST has ", nodes->size(), " nodes, SLURM_TASKS_PER_NODE is for ",
                           slots->size());
  }
  for (size_t i = 0; i < nodes->size(); ++i) {
    if ((*slots)[i] > 0) allocation.hosts.push_back({.name = (*nodes)[i], .slots = (*slots)[i]});
  }
  // A batch script runs on the first node; the shell of salloc may be elsewhere.
  if (variables.Has("SLURMD_NODENAME")) allocation.here = variables.Text("SLURMD_NODENAME");
  return allocation;
}

StatusOr<MeetingLaunch> MeetInAllocation(const Allocation& allocation, const std::string& job) {
  // Wishes of the allocation that need not hold for the step, which may have fewer tasks.
  MeetingLaunch meeting = {.address = allocation.here,
                           .step = {"env", "-u", "SLURM_NTASKS_PER_NODE", "-u", "SLURM_DISTRIBUTION", "srun"}};
  meeting.point.label = absl::StrCat(allocation.name, ", launch ", job);
  meeting.point.hosts = {allocation.here};
  meeting.point.ports = MeetingPorts(meeting.point.label);
  MR_ASSIGN_OR_RETURN(meeting.point.guard, ChooseGuard(allocation.environment, meeting.point.label));
  return meeting;
}

}  // namespace millrace::launch
