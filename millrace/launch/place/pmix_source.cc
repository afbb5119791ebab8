// PMIx: a process that `prterun` or another launcher with PMIx started, and of which nothing else is known.
#include "absl/strings/match.h"
#include "millrace/launch/place/standing.h"

namespace millrace::launch {
namespace {

bool HasPmix(const Surroundings& here) {
  const Environment& environment = here.environment;
  if (!environment.contains("PMIX_RANK") || !environment.contains("PMIX_NAMESPACE")) return false;
  // That of `srun --mpi=pmix`: the variables of the step say more.
  return !(absl::StartsWith(environment.at("PMIX_NAMESPACE"), "slurm.pmix.") && InSlurmStep(environment));
}

StatusOr<Standing> ReadPmix(const Surroundings& here, absl::Span<const std::string>) {
  Variables variables(here.environment);
  Standing standing;
  MR_ASSIGN_OR_RETURN(standing.rank, variables.Number("PMIX_RANK"));
  standing.scheduler = absl::StrCat("PMIx job ", variables.Text("PMIX_NAMESPACE"));
  // PMIx itself has no variable for the number of processes; without this one, only the flags say.
  standing.size = 0;
  if (variables.Has("PMI_SIZE")) {
    MR_ASSIGN_OR_RETURN(standing.size, variables.Number("PMI_SIZE"));
  }
  standing.local_size = 0;
  standing.used = variables.used();
  standing.address = here.host_name;
  return standing;
}

}  // namespace

const PlaceSource kPmixSource = {"PMIx", HasPmix, ReadPmix};

}  // namespace millrace::launch
