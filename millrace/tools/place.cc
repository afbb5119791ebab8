// millrace place: makes a process that a scheduler started a task of a cluster.
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "millrace/cluster/server_environment.h"
#include "millrace/launch/place/run_place.h"
#include "millrace/tools/command.h"
#include "millrace/tools/job_flags.h"
#include "millrace/tools/place_flags.h"

namespace millrace {
namespace {

StatusOr<launch::Place> FindPlaceByFlags(const launch::Surroundings& here, const PlaceFlags& flags) {
  launch::PlaceRequest request;
  MR_ASSIGN_OR_RETURN(request.groups, flags.Groups());
  // With --workers the user has said how many tasks there are.
  request.rest_are_workers = flags.workers == 0;
  if (flags.rank >= 0) request.rank = flags.rank;
  if (flags.size >= 0) request.size = flags.size;
  request.address = flags.address;
  request.port = flags.port;
  return launch::FindPlace(here, request);
}

StatusOr<launch::PlaceOptions> PlaceOptionsOf(const PlaceFlags& flags, const launch::Place& place,
                                              const std::vector<std::string>& program, const std::string& command) {
  launch::PlaceOptions options;
  options.meet = flags.meet;
  launch::LauncherOptions& launch = options.launch;
  std::error_code error;
  const std::string millrace = std::filesystem::read_symlink("/proc/self/exe", error).string();
  launch.command = command;
  launch.remote.directory = std::filesystem::current_path(error).string();
  launch.job.groups = place.groups;
  launch.job.program = program;
  for (const auto& [flag, value] : {std::pair("--grace", flags.grace), std::pair("--hang_kill", flags.hang_kill)}) {
    if (!(value >= 0)) return InvalidArgument(flag, " is ", value, "; give a number of seconds");
  }
  if (!(flags.start_timeout > 0))
    return InvalidArgument("--start_timeout is ", flags.start_timeout, "; give a number of seconds above 0");
  launch.job.grace = absl::Seconds(flags.grace);
  launch.start_timeout = absl::Seconds(flags.start_timeout);
  if (flags.hang_kill > 0) launch.hang.kill = absl::Seconds(flags.hang_kill);
  MR_RETURN_IF_ERROR(flags.FillPrograms(millrace, &launch.job));
  MR_RETURN_IF_ERROR(launch.job.Check());
  launch.host_flags = flags.host_flags;
  launch.insecure = flags.insecure || InsecureByEnvironment();
  launch.file_roots = flags.file_roots;
  launch.log_dir = flags.log_dir;
  launch.quiet = flags.quiet;
  MR_RETURN_IF_ERROR(flags.notice.Fill(&launch));
  return options;
}

constexpr char kPlaceFooter[] =
    R"(Which task this is and who the others are, it takes from the first of these that is there:
  --rank and --size; TF_CONFIG; Open MPI's mpirun; Hydra's mpiexec (MPICH, Intel MPI); PMIx; a step of Slurm's (srun);
  a pod of Kubernetes' (Indexed Job, JobSet, StatefulSet).
Ranks are tasks in this order: ps, the jobs of --job, workers. Without --workers the tasks that are left are workers.
The program learns its place as under `millrace launch`: TF_CONFIG, --host_flags, placeholders in its arguments.

Examples:
  srun -n 3 millrace place --ps 1 -- ./my_program                       one ps and two workers, in a step of Slurm's
  mpirun -np 3 millrace place --ps 1 -- ./my_program                    the same with MPI
  millrace place --ps 1 --workers 2 -- ./my_program                     in a pod, at port 2222
  millrace place --rank 1 --size 3 --meet node1 -- ./my_program         by any other means
  srun -n 3 millrace place --ps 1 --explain                             what it finds, and from which variables

Exit code: as that of `millrace launch`, for every task. See docs/slurm.md and docs/mpi.md for more.)";

}  // namespace

int RunPlaceCommand(const PlaceFlags& flags, const std::vector<std::string>& program) {
  const launch::Surroundings here = launch::Surroundings::OfThisProcess();
  const StatusOr<launch::Place> place = FindPlaceByFlags(here, flags);
  if (!place.ok()) return Fail("place", place.status(), 2);
  if (flags.explain) {
    std::cout << place->Explain() << std::flush;
    return 0;
  }
  StatusOr<launch::PlaceOptions> options = PlaceOptionsOf(flags, *place, program, absl::StrJoin(program, " "));
  if (!options.ok()) return Fail("place", options.status(), 2);
  return launch::RunPlace(here, *place, *std::move(options));
}

std::function<int()> AddPlace(CLI::App& app, const std::vector<std::string>& program, CLI::App** command) {
  CLI::App* place = app.add_subcommand(
      "place",
      "Makes this process, which a scheduler started, a task of a cluster: srun -n 3 millrace place --ps 1 -- "
      "./my_program --my_flags");
  auto flags = std::make_shared<PlaceFlags>();
  flags->Add(place);
  flags->AddSources(place);
  flags->AddAccess(place);
  place->footer(kPlaceFooter);
  *command = place;
  return [flags, &program] { return RunPlaceCommand(*flags, program); };
}

}  // namespace millrace
