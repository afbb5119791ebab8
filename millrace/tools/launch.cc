// millrace launch: runs a whole cluster with one command.
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
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
#include "millrace/cluster/server_access.h"
#include "millrace/launch/launcher.h"
#include "millrace/launch/python_site.h"
#include "millrace/tools/command.h"

namespace millrace {
namespace {

struct LaunchFlags {
  int ps = 0, workers = 0;
  std::vector<std::string> jobs, side_jobs, restarts, programs, serves, environment, services;
  std::string hosts, ssh = "ssh", remote_millrace;
  bool python = false, host_flags = false, quiet = false, bind_workers = false, insecure = false;
  std::vector<std::string> file_roots;
  std::string log_dir, color = "auto";
  double grace = 5, suspend_limit = 7, hang_after = 10, hang_kill = 0, start_timeout = 30;
  std::string profile_steps, profile_dir;
};

StatusOr<std::pair<std::string, std::string>> JobAndValue(const std::string& flag, const std::string& text) {
  const size_t at = text.find('=');
  if (at == std::string::npos || at == 0)
    return InvalidArgument(flag, " ", text, ": give JOB=..., as in ", flag, " worker=...");
  return std::pair(text.substr(0, at), text.substr(at + 1));
}

StatusOr<launch::TaskGroup*> FindGroup(launch::JobSpec* job, const std::string& flag, const std::string& name) {
  std::vector<std::string> names;
  for (launch::TaskGroup& group : job->groups) {
    if (group.name == name) return &group;
    names.push_back(group.name);
  }
  return InvalidArgument(flag, ": there is no job '", name, "'; the jobs are: ", absl::StrJoin(names, ", "));
}

Status AddGroups(const LaunchFlags& flags, launch::JobSpec* job) {
  if (flags.ps < 0 || flags.workers < 0) return InvalidArgument("--ps and --workers cannot be negative");
  if (flags.ps > 0) job->groups.push_back({.name = "ps", .count = flags.ps});
  for (const auto& [flag, texts, side] :
       {std::tuple("--job", &flags.jobs, false), std::tuple("--side_job", &flags.side_jobs, true)}) {
    for (const std::string& text : *texts) {
      MR_ASSIGN_OR_RETURN(const auto part, JobAndValue(flag, text));
      int count;
      if (!absl::SimpleAtoi(part.second, &count) || count < 1)
        return InvalidArgument(flag, " ", text, ": '", part.second, "' is not a number of tasks");
      job->groups.push_back({.name = part.first, .count = count, .side = side});
    }
  }
  if (flags.workers > 0) job->groups.push_back({.name = "worker", .count = flags.workers});
  if (job->groups.empty()) return InvalidArgument("no tasks: give --workers N, --ps N or --job NAME=N");
  return absl::OkStatus();
}

Status AddPolicies(const LaunchFlags& flags, launch::JobSpec* job) {
  for (const std::string& text : flags.restarts) {
    const size_t at = text.find('=');
    StatusOr<launch::RestartPolicy> policy =
        launch::RestartPolicy::Parse(at == std::string::npos ? text : text.substr(at + 1));
    if (!policy.ok()) return WithPrefix(absl::StrCat("--restart ", text, ": "), policy.status());
    if (at == std::string::npos) {
      for (launch::TaskGroup& group : job->groups) group.restart = *policy;
      continue;
    }
    MR_ASSIGN_OR_RETURN(launch::TaskGroup * group, FindGroup(job, "--restart", text.substr(0, at)));
    group->restart = *policy;
  }
  const std::vector<std::string> services = flags.services.empty() ? std::vector<std::string>{"ps"} : flags.services;
  for (const std::string& name : services) {
    if (flags.services.empty() && flags.ps == 0) break;
    MR_ASSIGN_OR_RETURN(launch::TaskGroup * group, FindGroup(job, "--service_job", name));
    group->serves = true;
  }
  return absl::OkStatus();
}

Status AddPrograms(const LaunchFlags& flags, const std::string& millrace, launch::JobSpec* job) {
  for (const std::string& text : flags.programs) {
    MR_ASSIGN_OR_RETURN(const auto part, JobAndValue("--job_program", text));
    MR_ASSIGN_OR_RETURN(launch::TaskGroup * group, FindGroup(job, "--job_program", part.first));
    StatusOr<std::vector<std::string>> words = launch::SplitCommand(part.second);
    if (!words.ok()) return WithPrefix("--job_program: ", words.status());
    group->program = *words;
    if (group->program[0] == "millrace") group->program[0] = millrace;
  }
  for (const std::string& name : flags.serves) {
    MR_ASSIGN_OR_RETURN(launch::TaskGroup * group, FindGroup(job, "--serve", name));
    if (!group->program.empty())
      return InvalidArgument("--serve ", name, " and --job_program ", name, "=... are both given");
    group->program = {millrace, "serve", "--cluster_spec={cluster_spec}", "--job_name={job_name}",
                      "--task_index={task_index}"};
  }
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
  if (flags.hosts.empty()) {
    if (StatusOr<std::string> site = launch::FindPythonSite(millrace); !site.ok())
      return WithPrefix("--python: ", site.status());
  } else if (!options->insecure) {
    return InvalidArgument(
        "--python with --hosts needs --insecure: TensorFlow's client has no TLS, and so everyone who can reach these "
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
  MR_RETURN_IF_ERROR(AddGroups(flags, &job));
  MR_RETURN_IF_ERROR(AddPolicies(flags, &job));
  MR_RETURN_IF_ERROR(AddPrograms(flags, flags.hosts.empty() ? millrace : options.remote.millrace, &job));
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
  const char* term = getenv("TERM");
  const bool terminal = isatty(STDOUT_FILENO) != 0 && term != nullptr && absl::string_view(term) != "dumb";
  MR_ASSIGN_OR_RETURN(options.colour, UseColour(flags, terminal));
  options.quiet = flags.quiet;
  options.live = terminal && !flags.quiet;
  options.hang.after = flags.hang_after == 0 ? absl::InfiniteDuration() : absl::Seconds(flags.hang_after);
  if (flags.hang_kill > 0) options.hang.kill = absl::Seconds(flags.hang_kill);
  options.start_timeout = absl::Seconds(flags.start_timeout);
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
  millrace status                                                                 what the jobs on this machine are doing

Exit code: 0 if all tasks except the ps succeeded; otherwise that of the task that failed first (128 + N for signal N);
130 after Ctrl-C; 1 if a task was lost; 2 for an error in the flags. See docs/launch.md for more.)";

// Which tasks there are and what they run.
void AddJobOptions(CLI::App* launch, LaunchFlags* flags) {
  launch->add_option("--ps", flags->ps, "Number of ps tasks");
  launch->add_option("--workers", flags->workers, "Number of worker tasks");
  launch->add_option("--job", flags->jobs, "Another job: NAME=N, as in chief=1 or evaluator=1; may be repeated")
      ->allow_extra_args(false);
  launch
      ->add_option("--side_job", flags->side_jobs,
                   "A job outside of the cluster, NAME=N, such as a client or TensorBoard: it gets the cluster's "
                   "addresses, but the "
                   "cluster's tasks do not get its own; may be repeated")
      ->allow_extra_args(false);
  launch->add_flag("--python", flags->python,
                   "The program is one of TensorFlow's in Python: its tf.train.Server becomes Millrace's, without a "
                   "change in it. A program NAME.py is run by the Python that this command was installed for, or "
                   "python3. Implies --insecure on this machine");
  launch->add_flag("--host_flags", flags->host_flags,
                   "Passes --ps_hosts, --worker_hosts, --job_name and --task_index to the program");
  launch
      ->add_option("--serve", flags->serves,
                   "A job that runs `millrace serve` instead of the program, as in --serve ps; may be repeated")
      ->allow_extra_args(false);
  launch
      ->add_option("--job_program", flags->programs,
                   "Another program for a job: JOB='command with {task_index}'; may be repeated")
      ->allow_extra_args(false);
  launch
      ->add_option("--service_job", flags->services,
                   "A job that is stopped when all other jobs are done; may be repeated. Default: ps")
      ->allow_extra_args(false);
  launch
      ->add_option("--restart", flags->restarts,
                   "What to do when a task fails: [JOB=]never (the default: the whole run fails), or "
                   "[JOB=]on-failure[:N] (restart the task up to N times, 3 by default, after 1, 2, 4, ... s)")
      ->allow_extra_args(false);
}

// Where they run.
void AddPlaceOptions(CLI::App* launch, LaunchFlags* flags) {
  launch->add_option("--hosts", flags->hosts,
                     "A file with lines 'host [slots=N] [address=HOST]': runs the tasks there, in order, over ssh");
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
                   "Seconds that a program has to end: from SIGINT to SIGTERM, and from SIGTERM to SIGKILL")
      ->capture_default_str();
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
  AddJobOptions(launch, flags.get());
  AddPlaceOptions(launch, flags.get());
  AddTimeOptions(launch, flags.get());
  AddOutputOptions(launch, flags.get());
  launch->footer(kFooter);
  *command = launch;
  return [flags, &program] { return Launch(*flags, program, absl::StrJoin(program, " ")); };
}

}  // namespace millrace
