// Slurm: a process of a step, which `srun` started. Heterogeneous steps number their tasks through, and their lists of
// nodes cover all components.
#include <algorithm>

#include "absl/strings/numbers.h"
#include "millrace/launch/place/node_list.h"
#include "millrace/launch/place/standing.h"

namespace millrace::launch {
namespace {

// Above are the numbers of steps that are no steps of `srun`: the batch script, an interactive shell.
constexpr uint32_t kMaxStep = 0xfffffff0;

// The first of them that is set: newer and older names of one thing.
std::string FirstOf(Variables* variables, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (variables->Has(name)) return variables->Text(name);
  }
  return "";
}

StatusOr<Standing> ReadSlurm(const Surroundings& here, absl::Span<const std::string>) {
  Variables variables(here.environment);
  Standing standing;
  const std::string job = FirstOf(&variables, {"SLURM_JOB_ID", "SLURM_JOBID"});
  const std::string step = FirstOf(&variables, {"SLURM_STEP_ID", "SLURM_STEPID"});
  standing.scheduler = absl::StrCat("Slurm step ", job, ".", step);
  // A job that was requeued has the number of its last run.
  if (const std::string restarts = variables.Text("SLURM_RESTART_COUNT"); !restarts.empty() && restarts != "0")
    absl::StrAppend(&standing.scheduler, ", restart ", restarts);
  MR_ASSIGN_OR_RETURN(standing.rank, variables.Number("SLURM_PROCID"));
  MR_ASSIGN_OR_RETURN(
      standing.size, variables.Number(variables.Has("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS"));
  const std::string nodes = FirstOf(&variables, {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"});
  const std::string counts = FirstOf(&variables, {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"});
  StatusOr<std::vector<std::string>> names = ExpandNodeList(nodes);
  if (!names.ok()) return WithPrefix("SLURM_STEP_NODELIST: ", names.status());
  StatusOr<std::vector<int>> tasks = ExpandCounts(counts);
  if (!tasks.ok()) return WithPrefix("SLURM_STEP_TASKS_PER_NODE: ", tasks.status());
  MR_ASSIGN_OR_RETURN(const std::vector<std::string> ranks, HostsOfRanks(*names, *tasks, standing.size));
  // Tasks that are distributed in turns (cyclic, plane, arbitrary) are numbered in another order.
  if (std::all_of(tasks->begin(), tasks->end(), [](int n) { return n == 1; }) || names->size() == 1)
    standing.hosts = ranks;
  standing.first_hosts = *names;
  MR_ASSIGN_OR_RETURN(standing.local_rank, variables.Number("SLURM_LOCALID"));
  int node = 0;
  if (variables.Has("SLURM_NODEID")) {
    MR_ASSIGN_OR_RETURN(node, variables.Number("SLURM_NODEID"));
    if (node >= static_cast<int>(names->size()))
      return InvalidArgument("SLURM_NODEID is ", node, ", but the step has ", names->size(), " nodes");
  }
  standing.local_size = (*tasks)[node];
  standing.address = FirstOf(&variables, {"SLURMD_NODENAME"});
  if (standing.address.empty()) standing.address = (*names)[node];
  standing.used = variables.used();
  MR_RETURN_IF_ERROR(CheckRanks(standing));
  return standing;
}

}  // namespace

bool InSlurmStep(const Environment& environment) {
  const auto step = environment.find(environment.contains("SLURM_STEP_ID") ? "SLURM_STEP_ID" : "SLURM_STEPID");
  if (step == environment.end() || !environment.contains("SLURM_PROCID")) return false;
  uint32_t number;
  return !absl::SimpleAtoi(step->second, &number) || number < kMaxStep;
}

const PlaceSource kSlurmSource = {"Slurm", [](const Surroundings& here) { return InSlurmStep(here.environment); },
                                  ReadSlurm};

}  // namespace millrace::launch
