// Open MPI: a process that `mpirun` started.
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "millrace/launch/place/node_list.h"
#include "millrace/launch/place/standing.h"

namespace millrace::launch {
namespace {

// The addresses in "1141374976.0;tcp://192.0.2.2,10.0.0.7:35711;tcp6://[fd00::2]:39835": where mpirun runs, and most
// often rank 0.
std::vector<std::string> HostsOfUri(absl::string_view uri) {
  std::vector<std::string> hosts;
  for (const absl::string_view part : absl::StrSplit(uri, ';')) {
    absl::string_view rest = part;
    const size_t colon = rest.rfind(':');
    if (!absl::ConsumePrefix(&rest, "tcp://") || colon == absl::string_view::npos) continue;
    rest = rest.substr(0, rest.rfind(':'));
    for (const absl::string_view host : absl::StrSplit(rest, ',', absl::SkipEmpty())) hosts.emplace_back(host);
  }
  return hosts;
}

StatusOr<Standing> ReadOpenMpi(const Surroundings& here, absl::Span<const std::string>) {
  Variables variables(here.environment);
  Standing standing;
  MR_ASSIGN_OR_RETURN(standing.rank, variables.Number("OMPI_COMM_WORLD_RANK"));
  MR_ASSIGN_OR_RETURN(standing.size, variables.Number("OMPI_COMM_WORLD_SIZE"));
  MR_ASSIGN_OR_RETURN(standing.local_rank, variables.Number("OMPI_COMM_WORLD_LOCAL_RANK"));
  MR_ASSIGN_OR_RETURN(standing.local_size, variables.Number("OMPI_COMM_WORLD_LOCAL_SIZE"));
  std::string job = variables.Text("PMIX_NAMESPACE");
  if (job.empty()) job = variables.Text("OMPI_MCA_ess_base_jobid");
  standing.scheduler = absl::StrCat("Open MPI job ", job);
  standing.address = here.host_name;
  if (standing.local_size < standing.size) {
    // Within an allocation of Slurm's, rank 0 is on one of its nodes.
    if (const std::string nodes = variables.Text("SLURM_JOB_NODELIST"); !nodes.empty()) {
      StatusOr<std::vector<std::string>> names = ExpandNodeList(nodes);
      if (!names.ok()) return WithPrefix("SLURM_JOB_NODELIST: ", names.status());
      standing.first_hosts = *std::move(names);
    } else {
      standing.first_hosts = HostsOfUri(variables.Text("OMPI_MCA_orte_hnp_uri"));
    }
  }
  standing.used = variables.used();
  MR_RETURN_IF_ERROR(CheckRanks(standing));
  return standing;
}

}  // namespace

const PlaceSource kOpenMpiSource = {
    "Open MPI", [](const Surroundings& here) { return here.environment.contains("OMPI_COMM_WORLD_RANK"); },
    ReadOpenMpi};

}  // namespace millrace::launch
