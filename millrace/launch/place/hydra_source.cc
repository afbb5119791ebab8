// Hydra: a process that the `mpiexec` of MPICH, Intel MPI or MVAPICH started.
#include "millrace/launch/place/node_list.h"
#include "millrace/launch/place/standing.h"

namespace millrace::launch {
namespace {

bool HasHydra(const Surroundings& here) {
  const Environment& environment = here.environment;
  if (!environment.contains("PMI_RANK") || !environment.contains("PMI_SIZE")) return false;
  // `srun --mpi=pmi2` sets the two as well, but never this one.
  return environment.contains("MPI_LOCALRANKID") || !InSlurmStep(environment);
}

StatusOr<Standing> ReadHydra(const Surroundings& here, absl::Span<const std::string>) {
  Variables variables(here.environment);
  Standing standing;
  MR_ASSIGN_OR_RETURN(standing.rank, variables.Number("PMI_RANK"));
  MR_ASSIGN_OR_RETURN(standing.size, variables.Number("PMI_SIZE"));
  if (variables.Has("MPI_LOCALRANKID")) {
    MR_ASSIGN_OR_RETURN(standing.local_rank, variables.Number("MPI_LOCALRANKID"));
    MR_ASSIGN_OR_RETURN(standing.local_size, variables.Number("MPI_LOCALNRANKS"));
  } else {
    standing.local_size = 0;
  }
  // Hydra gives a job no name. On one host its tasks have one parent.
  standing.scheduler =
      standing.local_size == standing.size ? absl::StrCat("Hydra job of process ", here.parent) : "Hydra job";
  standing.address = here.host_name;
  if (const std::string nodes = variables.Text("SLURM_JOB_NODELIST"); !nodes.empty()) {
    StatusOr<std::vector<std::string>> names = ExpandNodeList(nodes);
    if (!names.ok()) return WithPrefix("SLURM_JOB_NODELIST: ", names.status());
    standing.first_hosts = *std::move(names);
  }
  standing.used = variables.used();
  MR_RETURN_IF_ERROR(CheckRanks(standing));
  return standing;
}

}  // namespace

const PlaceSource kHydraSource = {"Hydra", HasHydra, ReadHydra};

}  // namespace millrace::launch
