// millrace launch: runs a whole cluster with one command.
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "millrace/base/file.h"
#include "millrace/cluster/server_environment.h"
#include "millrace/dashboard/dashboard.h"
#include "millrace/dashboard/plan.h"
#include "millrace/launch/allocation.h"
#include "millrace/launch/launcher.h"
#include "millrace/launch/python_site.h"
#include "millrace/tools/command.h"
#include "millrace/tools/job_flags.h"
#include "millrace/tools/notice_flags.h"
#include "millrace/train/timeline/merge_timelines.h"

namespace millrace {
namespace {

struct LaunchFlags : JobFlags {
  std::vector<std::string> environment;
  std::string hosts, ssh = "ssh", remote_millrace, scheduler = "auto";
  bool python = false, quiet = false, bind_workers = false, insecure = false;
  std::vector<std::string> file_roots;
  std::string log_dir, color = "auto";
  double grace = 5, suspend_limit = 7, hang_after = 10, hang_kill = 0, start_timeout = 30;
  std::string profile_steps, profile_dir;
  bool dashboard = false;
  int dashboard_port = 0;
  std::string dashboard_save, plan;
  NoticeFlags notice;
};

// --ps auto, until the plan has been read.
constexpr int kAutoPs = std::numeric_limits<int>::min();

// --ps auto: the number of ps tasks that the plan says for the workers.
Status ChooseNumPs(LaunchFlags* flags) {
  if (flags->ps != kAutoPs) return flags->plan.empty() ? absl::OkStatus() : InvalidArgument("--plan is for --ps auto");
  if (flags->plan.empty()) {
    return InvalidArgument(
        "--ps auto needs --plan FILE: the rates of an earlier run, as `millrace status --target grpc://... --rates 5 "
        "--json > FILE` writes them while it trains");
  }
  if (flags->workers < 1) return InvalidArgument("--ps auto needs --workers");
  StatusOr<std::string> text = ReadWholeFile(FileSystem::Posix(), flags->plan);
  if (!text.ok()) return WithPrefix("--plan: ", text.status());
  StatusOr<std::vector<TaskRate>> rates = dashboard::RatesFromJson(*text);
  if (!rates.ok()) return WithPrefix(absl::StrCat("--plan ", flags->plan, ": "), rates.status());
  StatusOr<dashboard::MeasuredRun> run = dashboard::MeasureRun(*rates);
  if (!run.ok()) return WithPrefix(absl::StrCat("--plan ", flags->plan, ": "), run.status());
  flags->ps = dashboard::ChoosePs(*run, flags->workers, flags->workers);
  if (!flags->quiet) {
    std::cerr << "millrace: --ps auto: " << flags->ps << " ps for " << flags->workers << " workers (" << flags->plan
              << ")\n";
  }
  return absl::OkStatus();
}

Status AddDashboardFlags(const LaunchFlags& flags, launch::LauncherOptions* options) {
  options->dashboard = flags.dashboard || !flags.dashboard_save.empty() || flags.dashboard_port != 0;
  if (flags.dashboard_port < 0 || flags.dashboard_port > 65535)
    return InvalidArgument("--dashboard_port is ", flags.dashboard_port, "; give a port, up to 65535");
  if (flags.dashboard_port != 0) options->dashboard_flags.push_back(absl::StrCat("--port=", flags.dashboard_port));
  if (flags.dashboard_save.empty()) return absl::OkStatus();
  if (const Status writable = dashboard::CheckSave(flags.dashboard_save); !writable.ok())
    return WithPrefix("--dashboard_save: ", writable);
  const std::string path = std::filesystem::absolute(flags.dashboard_save).string();
  options->dashboard_flags.push_back(absl::StrCat("--save=", path));
  return absl::OkStatus();
}

StatusOr<bool> UseColour(const LaunchFlags& flags, bool terminal) {
  if (flags.color == "always") return true;
  if (flags.color == "never") return false;
  if (flags.color != "auto") return InvalidArgument("--color is '", flags.color, "'; use auto, always or never");
  const char* no_colour = getenv("NO_COLOR");
  return terminal && (no_colour == nullptr || *no_colour == 0);
}

Status CheckProfile(LaunchFlags* flags) {
  if (flags->profile_steps.empty()) return absl::OkStatus();
  const std::pair<std::string, std::string> part = absl::StrSplit(flags->profile_steps, absl::MaxSplits(':', 1));
  int64_t first, last;
  if (!absl::SimpleAtoi(part.first, &first) || first < 0 ||
      (!part.second.empty() && (!absl::SimpleAtoi(part.second, &last) || last <= first)) ||
      absl::EndsWith(flags->profile_steps, ":")) {
    return InvalidArgument("--profile_steps is '", flags->profile_steps,
                           "'; give a step, as in 100, or a range, as in 100:105 (the end is excluded)");
  }
  if (flags->profile_dir.empty()) flags->profile_dir = "millrace_profile";
  flags->profile_dir = std::filesystem::absolute(flags->profile_dir).string();
  return FileSystem::Posix()->MakeDirectories(flags->profile_dir);
}

// Programs of TensorFlow's kind: what they need to get Millrace's servers.
Status AddPython(const LaunchFlags& flags, const std::string& millrace, launch::LauncherOptions* options) {
  if (!flags.python) return absl::OkStatus();
  // On other hosts each keeper looks for it.
  if (flags.hosts.empty() && !options->meeting.has_value()) {
    if (StatusOr<std::string> site = launch::FindPythonSite(millrace); !site.ok())
      return WithPrefix("--python: ", site.status());
  } else if (!options->insecure) {
    return InvalidArgument(
        "--python on other hosts needs --insecure: TensorFlow's client has no TLS, and so everyone who can reach these "
        "hosts can use the servers of the job");
  }
  options->insecure = true;
  options->environment.push_back(absl::StrCat(launch::kPythonServersVariable, "=1"));
  std::vector<std::string>& program = options->job.program;
  if (!program.empty() && absl::EndsWith(program[0], ".py")) {
    const char* python = getenv("MILLRACE_PYTHON");
    program.insert(program.begin(), python != nullptr && *python != 0 ? python : "python3");
  }
  return absl::OkStatus();
}

// Within an allocation of a scheduler's: its nodes, and keepers that come to a meeting with this launcher.
Status AddAllocation(const LaunchFlags& flags, launch::LauncherOptions* options) {
  if (flags.scheduler == "none") return absl::OkStatus();
  if (flags.scheduler != "auto") return InvalidArgument("--scheduler is '", flags.scheduler, "'; use auto or none");
  if (!flags.hosts.empty()) return absl::OkStatus();
  const launch::Surroundings here = launch::Surroundings::OfThisProcess();
  MR_ASSIGN_OR_RETURN(std::optional<launch::Allocation> allocation, launch::FindAllocation(here));
  if (!allocation.has_value()) return absl::OkStatus();
  options->job.hosts = std::move(allocation->hosts);
  if (const Status enough = launch::PlaceTasks(options->job).status(); !enough.ok()) {
    return InvalidArgument(allocation->name, ": ", enough.message(),
                           " (sbatch --ntasks N, or --scheduler none to run on this machine)");
  }
  options->share_gpus = true;
  MR_ASSIGN_OR_RETURN(options->meeting, launch::MeetInAllocation(*allocation, options->remote.job));
  return absl::OkStatus();
}

StatusOr<launch::LauncherOptions> OptionsOf(LaunchFlags flags, const std::vector<std::string>& program) {
  launch::LauncherOptions options;
  for (const auto& [flag, value] :
       {std::pair("--grace", flags.grace), std::pair("--suspend_limit", flags.suspend_limit),
        std::pair("--hang_after", flags.hang_after), std::pair("--hang_kill", flags.hang_kill)}) {
    if (!(value >= 0)) return InvalidArgument(flag, " is ", value, "; give a number of seconds");
  }
  if (!(flags.start_timeout > 0))
    return InvalidArgument("--start_timeout is ", flags.start_timeout, "; give a number of seconds above 0");
  std::error_code error;
  const std::string millrace = std::filesystem::read_symlink("/proc/self/exe", error).string();
  options.remote.millrace = flags.remote_millrace.empty() ? millrace : flags.remote_millrace;
  options.remote.directory = std::filesystem::current_path(error).string();
  StatusOr<std::vector<std::string>> ssh = launch::SplitCommand(flags.ssh);
  if (!ssh.ok()) return WithPrefix("--ssh: ", ssh.status());
  options.remote.ssh = *ssh;
  std::random_device random;
  options.remote.job = absl::StrFormat("%08x%08x", random(), random());

  launch::JobSpec& job = options.job;
  job.program = program;
  job.grace = absl::Seconds(flags.grace);
  options.insecure = flags.insecure || InsecureByEnvironment();
  for (const std::string& root : flags.file_roots) {
    if (absl::StrContains(root, ":")) return InvalidArgument("--file_root ", root, ": a path with a colon");
    options.file_roots.push_back(flags.hosts.empty() ? std::filesystem::absolute(root).string() : root);
  }
  job.suspend_limit = flags.suspend_limit == 0 ? absl::InfiniteDuration() : absl::Seconds(flags.suspend_limit);
  options.remote.silence = std::max(options.remote.silence, job.suspend_limit);
  MR_RETURN_IF_ERROR(AddDashboardFlags(flags, &options));
  MR_RETURN_IF_ERROR(ChooseNumPs(&flags));
  MR_RETURN_IF_ERROR(flags.FillJob(flags.hosts.empty() ? millrace : options.remote.millrace, &job));
  MR_RETURN_IF_ERROR(AddAllocation(flags, &options));
  if (!flags.hosts.empty()) {
    StatusOr<std::string> text = ReadWholeFile(FileSystem::Posix(), flags.hosts);
    if (!text.ok()) return WithPrefix("--hosts: ", text.status());
    StatusOr<std::vector<launch::Host>> hosts = launch::ParseHosts(*text);
    if (!hosts.ok()) return WithPrefix(absl::StrCat("--hosts ", flags.hosts, ": "), hosts.status());
    job.hosts = *std::move(hosts);
  }
  job.bind_workers = flags.bind_workers;
  MR_RETURN_IF_ERROR(job.Check());

  options.host_flags = flags.host_flags;
  for (const std::string& variable : flags.environment) {
    if (variable.empty() || variable[0] == '=')
      return InvalidArgument("--env '", variable, "': give NAME=VALUE, or NAME to pass on its value here");
    const char* value = getenv(variable.c_str());
    if (absl::StrContains(variable, "=")) {
      options.environment.push_back(variable);
    } else if (value != nullptr) {
      options.environment.push_back(absl::StrCat(variable, "=", value));
    }
  }
  MR_RETURN_IF_ERROR(AddPython(flags, millrace, &options));
  options.log_dir = flags.log_dir;
  MR_RETURN_IF_ERROR(CheckProfile(&flags));
  options.profile_steps = flags.profile_steps;
  options.profile_dir = flags.profile_dir;
  options.merge_profiles = [](const std::string& directory) { return MergeTimelines(directory); };
  const char* term = getenv("TERM");
  const bool terminal = isatty(STDOUT_FILENO) != 0 && term != nullptr && absl::string_view(term) != "dumb";
  MR_ASSIGN_OR_RETURN(options.colour, UseColour(flags, terminal));
  options.quiet = flags.quiet;
  options.live = terminal && !flags.quiet;
  options.hang.after = flags.hang_after == 0 ? absl::InfiniteDuration() : absl::Seconds(flags.hang_after);
  if (flags.hang_kill > 0) options.hang.kill = absl::Seconds(flags.hang_kill);
  options.start_timeout = absl::Seconds(flags.start_timeout);
  MR_RETURN_IF_ERROR(flags.notice.Fill(&options));
  return options;
}

int Launch(const LaunchFlags& flags, const std::vector<std::string>& program, const std::string& command) {
  StatusOr<launch::LauncherOptions> options = OptionsOf(flags, program);
  if (!options.ok()) {
    std::cerr << "millrace launch: " << options.status().message() << "\n";
    return 2;
  }
  options->command = command;
  return launch::RunLauncher(*options);
}

constexpr char kFooter[] = R"(How the program learns its place in the cluster:
  always by the environment variable TF_CONFIG:
    {"cluster": {"ps": [...], "worker": [...]}, "task": {"type": "worker", "index": 0}};
  with --host_flags, by flags as TensorFlow's programs take them:
    --ps_hosts=... --worker_hosts=... --job_name=... --task_index=...;
  by placeholders in its arguments:
    {ps_hosts} {worker_hosts} {JOB_hosts} {cluster_spec} {job_name} {task_index} {address} {port}.

--bind_workers keeps workers from competing for cores. Without it, each worker has as many threads as the machine has
cores: on two cores with one ps and two workers, short steps were a fifth faster with it. Do not use it if workers have
uneven loads or other programs need the machine, since no other task can use the idle cores of a bound worker. The ps
and all other tasks may run on any core.

Examples:
  millrace launch --ps 1 --workers 2 -- ./mnist_replica --train_steps=1000        one ps, two workers, on this machine
  millrace launch --python --ps 1 --workers 2 -- train.py --lr=0.1                a script of TensorFlow's, on Millrace's servers
  millrace launch --python --ps 1 --workers 2 --host_flags -- train.py            one that takes --ps_hosts and the like
  millrace launch --ps 1 --workers 2 --serve ps -- ./worker_only                  a program without a ps role: the ps tasks run millrace serve
  millrace launch --workers 4 --restart worker=on-failure:3 -- ./my_program       a failed worker is restarted, at most three times
  millrace launch --ps 2 --workers 6 --hosts hosts.txt -- ./my_program            over ssh; hosts.txt has lines: host slots=4
  sbatch -n 8 --wrap 'millrace launch --ps 2 --workers 6 -- ./my_program'         on the nodes of a Slurm allocation
  millrace status                                                                 what the jobs on this machine are doing

Exit code: 0 if all tasks except the ps succeeded; otherwise that of the task that failed first (128 + N for signal N);
130 after Ctrl-C; 143 after a notice (SIGTERM), 1 if the checkpoint is not whole then; 1 if a task was lost; 2 for an
error in the flags. See docs/launch.md for more.)";

// Where they run.
void AddPlaceOptions(CLI::App* launch, LaunchFlags* flags) {
  launch->add_option("--hosts", flags->hosts,
                     "A file with lines 'host [slots=N] [address=HOST]', or a host file of MPI or PBS: runs the tasks "
                     "there, in order, over ssh");
  launch
      ->add_option("--scheduler", flags->scheduler,
                   "auto: within an allocation of Slurm's (sbatch, salloc) the tasks run on its nodes, without --hosts "
                   "and ssh; none: on this machine nevertheless")
      ->capture_default_str();
  launch->add_option("--ssh", flags->ssh, "The ssh command, as in 'ssh -p 2222 -i key'")->capture_default_str();
  launch->add_option("--remote_millrace", flags->remote_millrace,
                     "The millrace command on the hosts; default: the same path as here");
  launch
      ->add_option("--env", flags->environment,
                   "NAME=VALUE for the programs' environment, or NAME to pass on its value here (needed only with "
                   "--hosts); may be repeated")
      ->allow_extra_args(false);
  launch->add_flag("--insecure", flags->insecure,
                   "Gives the job no certificates: its servers then serve anyone who can reach them, and nothing is "
                   "encrypted. For jobs with TensorFlow's clients or servers, which have no TLS");
  launch
      ->add_option("--file_root", flags->file_roots,
                   "A folder in which the job's servers let graphs read and write files; may be repeated. Default: all "
                   "files, or with --insecure none where other machines can reach a server")
      ->allow_extra_args(false);
  launch->add_flag("--bind_workers", flags->bind_workers,
                   "Binds each worker (and chief) to cores of its own: the usable cores of a host are divided evenly "
                   "among its workers. See below for when to use it");
}

void AddTimeOptions(CLI::App* launch, LaunchFlags* flags) {
  launch
      ->add_option("--grace", flags->grace,
                   "Seconds that a program has to end: from SIGINT to SIGTERM, and from SIGTERM to SIGKILL. After a "
                   "notice, those that the whole job has")
      ->capture_default_str();
  flags->notice.Add(launch);
  launch
      ->add_option(
          "--suspend_limit", flags->suspend_limit,
          "Seconds that a program may be suspended (SIGSTOP) before it counts as failed; 0: no limit. On other "
          "hosts also how long programs outlive a launcher that is suspended or gone, but at least 120 s")
      ->capture_default_str();
  launch
      ->add_option("--hang_after", flags->hang_after,
                   "Seconds without a step after which the tasks are asked what they wait for; 0: never ask")
      ->capture_default_str();
  launch->add_option("--hang_kill", flags->hang_kill, "Seconds of hanging after which the whole run fails; 0: never")
      ->capture_default_str();
  launch->add_option("--start_timeout", flags->start_timeout, "Seconds until a host must be ready to start tasks")
      ->capture_default_str();
}

void AddOutputOptions(CLI::App* launch, LaunchFlags* flags) {
  launch->add_option("--log_dir", flags->log_dir,
                     "Also writes each task's output to a file in this directory, such as worker-0.log");
  launch->add_flag("--dashboard", flags->dashboard,
                   "Shows the job on a web page, whose address is printed: `millrace dashboard` beside the job");
  launch->add_option("--dashboard_port", flags->dashboard_port, "The page's port; default: a free one");
  launch->add_option("--dashboard_save", flags->dashboard_save, "Also writes the page to this file at the end");
  launch->add_option("--color", flags->color, "auto, always or never; auto means on a terminal, unless NO_COLOR is set")
      ->capture_default_str();
  launch->add_flag("--quiet", flags->quiet, "Prints no status lines and no messages about tasks, except for failures");
  launch->add_option(
      "--profile_steps", flags->profile_steps,
      "Traces these global steps on all tasks, as in 100:105 (the end is excluded), and joins them to one timeline");
  launch->add_option("--profile_dir", flags->profile_dir, "Where the timeline is written; default: millrace_profile");
}

}  // namespace

std::function<int()> AddLaunch(CLI::App& app, const std::vector<std::string>& program, CLI::App** command) {
  CLI::App* launch = app.add_subcommand(
      "launch",
      "Starts a whole cluster, watches it and stops it: millrace launch --ps 1 --workers 2 -- ./my_program --my_flags");
  auto flags = std::make_shared<LaunchFlags>();
  flags->Add(launch);
  launch->get_option("--ps")
      ->transform([](std::string text) { return text == "auto" ? std::to_string(kAutoPs) : text; })
      ->description("Number of ps tasks, or auto: as many as --plan says for the workers");
  launch->add_option("--plan", flags->plan,
                     "The rates of an earlier run, for --ps auto: what `millrace status --rates --json` printed");
  launch->add_flag("--python", flags->python,
                   "The program is one of TensorFlow's in Python: its tf.train.Server becomes Millrace's, without a "
                   "change in it. A program NAME.py is run by the Python that this command was installed for, or "
                   "python3. Implies --insecure on this machine");
  AddPlaceOptions(launch, flags.get());
  AddTimeOptions(launch, flags.get());
  AddOutputOptions(launch, flags.get());
  launch->footer(kFooter);
  *command = launch;
  return [flags, &program] { return Launch(*flags, program, absl::StrJoin(program, " ")); };
}

}  // namespace millrace
