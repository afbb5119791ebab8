#include "millrace/tools/job_flags.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"

namespace millrace {
namespace {

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

StatusOr<std::vector<launch::TaskGroup>> GroupsOf(const JobFlags& flags) {
  std::vector<launch::TaskGroup> groups;
  if (flags.ps < 0 || flags.workers < 0) return InvalidArgument("--ps and --workers cannot be negative");
  if (flags.ps > 0) groups.push_back({.name = "ps", .count = flags.ps});
  for (const auto& [flag, texts, side] :
       {std::tuple("--job", &flags.jobs, false), std::tuple("--side_job", &flags.side_jobs, true)}) {
    for (const std::string& text : *texts) {
      MR_ASSIGN_OR_RETURN(const auto part, JobAndValue(flag, text));
      int count;
      if (!absl::SimpleAtoi(part.second, &count) || count < 1)
        return InvalidArgument(flag, " ", text, ": '", part.second, "' is not a number of tasks");
      groups.push_back({.name = part.first, .count = count, .side = side});
    }
  }
  if (flags.workers > 0) groups.push_back({.name = "worker", .count = flags.workers});
  return groups;
}

Status AddPolicies(const JobFlags& flags, launch::JobSpec* job) {
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

Status AddPrograms(const JobFlags& flags, const std::string& millrace, launch::JobSpec* job) {
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

}  // namespace

StatusOr<std::vector<launch::TaskGroup>> JobFlags::Groups() const { return GroupsOf(*this); }

Status JobFlags::FillPrograms(const std::string& millrace, launch::JobSpec* job) const {
  MR_RETURN_IF_ERROR(AddPolicies(*this, job));
  return AddPrograms(*this, millrace, job);
}

Status JobFlags::FillJob(const std::string& millrace, launch::JobSpec* job) const {
  MR_ASSIGN_OR_RETURN(job->groups, Groups());
  if (job->groups.empty()) return InvalidArgument("no tasks: give --workers N, --ps N or --job NAME=N");
  return FillPrograms(millrace, job);
}

void JobFlags::AddGroups(CLI::App* command) {
  command->add_option("--ps", ps, "Number of ps tasks");
  command->add_option("--workers", workers, "Number of worker tasks");
  command->add_option("--job", jobs, "Another job: NAME=N, as in chief=1 or evaluator=1; may be repeated")
      ->allow_extra_args(false);
  command
      ->add_option("--side_job", side_jobs,
                   "A job outside of the cluster, NAME=N, such as a client or TensorBoard: it gets the cluster's "
                   "addresses, but the "
                   "cluster's tasks do not get its own; may be repeated")
      ->allow_extra_args(false);
}

void JobFlags::Add(CLI::App* command) {
  AddGroups(command);
  command->add_flag("--host_flags", host_flags,
                    "Passes --ps_hosts, --worker_hosts, --job_name and --task_index to the program");
  command
      ->add_option("--serve", serves,
                   "A job that runs `millrace serve` instead of the program, as in --serve ps; may be repeated")
      ->allow_extra_args(false);
  command
      ->add_option("--job_program", programs,
                   "Another program for a job: JOB='command with {task_index}'; may be repeated")
      ->allow_extra_args(false);
  command
      ->add_option("--service_job", services,
                   "A job that is stopped when all other jobs are done; may be repeated. Default: ps")
      ->allow_extra_args(false);
  command
      ->add_option("--restart", restarts,
                   "What to do when a task fails: [JOB=]never (the default: the whole run fails), or "
                   "[JOB=]on-failure[:N] (restart the task up to N times, 3 by default, after 1, 2, 4, ... s)")
      ->allow_extra_args(false);
}

}  // namespace millrace
