#include "millrace/launch/place/find_place.h"

#include <algorithm>

#include "absl/strings/str_join.h"
#include "millrace/cluster/task_config.h"
#include "millrace/net/address.h"

namespace millrace::launch {
namespace {

constexpr char kFromFlags[] = "flags";

int CountOf(const std::vector<TaskGroup>& groups) {
  int count = 0;
  for (const TaskGroup& group : groups) count += group.count;
  return count;
}

std::string GroupsText(const std::vector<TaskGroup>& groups) {
  return absl::StrJoin(groups, " + ",
                       [](std::string* out, const TaskGroup& g) { absl::StrAppend(out, g.count, " ", g.name); });
}

const PlaceSource* InnermostSource(const Surroundings& here) {
  const auto sources = PlaceSources();
  const auto found =
      std::find_if(sources.begin(), sources.end(), [&](const PlaceSource& s) { return s.present(here); });
  return found == sources.end() ? nullptr : &*found;
}

// TF_CONFIG as it is, if it agrees with what was asked for and with the scheduler.
StatusOr<Place> FromTaskConfig(const Surroundings& here, const PlaceRequest& request, const std::string& text) {
  MR_ASSIGN_OR_RETURN(const TaskConfig config, TaskConfig::Parse(text));
  if (config.cluster.jobs().empty()) return InvalidArgument("TF_CONFIG names no cluster");
  Place place = {.source = kTaskConfigVariable, .task = {config.task.job, config.task.index}};
  ClusterAddresses cluster;
  for (const auto& [job, tasks] : config.cluster.jobs()) {
    for (const auto& [index, address] : tasks) cluster[job].push_back(address);
    place.groups.push_back({.name = job, .count = static_cast<int>(tasks.size())});
  }
  for (const TaskGroup& group : request.groups) {
    const auto found = cluster.find(group.name);
    const int has = found == cluster.end() ? 0 : static_cast<int>(found->second.size());
    if (!group.side && has != group.count) {
      return InvalidArgument("TF_CONFIG has ", has, " tasks of job ", group.name, ", but ", group.count,
                             " were asked for: leave out the flags, or unset TF_CONFIG");
    }
  }
  if (const PlaceSource* source = InnermostSource(here)) {
    const StatusOr<Standing> standing = source->read(here, {});
    // A batch script may run the program once, for itself; then a scheduler counts one task.
    if (standing.ok() && standing->size > 1 && standing->size != CountOf(place.groups)) {
      return InvalidArgument("TF_CONFIG names ", CountOf(place.groups), " tasks, but ", standing->scheduler, " has ",
                             standing->size, ": unset TF_CONFIG to take the tasks from there");
    }
  }
  place.standing.scheduler = kTaskConfigVariable;
  place.standing.size = CountOf(place.groups);
  place.standing.used = {absl::StrCat(kTaskConfigVariable, "=", text)};
  place.cluster = std::move(cluster);
  return place;
}

Status NoSource(const Surroundings& here) {
  if (const auto job = here.environment.find("SLURM_JOB_ID"); job != here.environment.end()) {
    return InvalidArgument("this is Slurm job ", job->second,
                           ", but no step of it: start the tasks with `srun millrace place ...`, or all of them with "
                           "`millrace launch ...`");
  }
  return InvalidArgument(
      "no scheduler has started this process: it is in no step of Slurm's (srun), under no mpirun or mpiexec, and in "
      "no pod. Start a cluster with `millrace launch`, or say which task this is with --rank, --size and --meet");
}

StatusOr<Standing> FromFlags(const Surroundings& here, const PlaceRequest& request) {
  if (!request.rank.has_value() || !request.size.has_value()) return InvalidArgument("give both --rank and --size");
  Standing standing = {.scheduler = kFromFlags, .rank = *request.rank, .size = *request.size, .local_size = 0};
  standing.address = here.host_name;
  standing.used = {absl::StrCat("--rank ", standing.rank), absl::StrCat("--size ", standing.size)};
  MR_RETURN_IF_ERROR(CheckRanks(standing));
  return standing;
}

// How many workers there are, and whether the tasks are as many as the scheduler started.
Status CompleteGroups(const PlaceRequest& request, Place* place) {
  place->groups = request.groups;
  const int asked = CountOf(place->groups);
  const Standing& standing = place->standing;
  if (standing.size == 0) {
    if (request.rest_are_workers) {
      return InvalidArgument(standing.scheduler, " does not know how many tasks there are: give --workers N as well");
    }
    place->standing.size = asked;
    return absl::OkStatus();
  }
  if (request.rest_are_workers && asked < standing.size)
    place->groups.push_back({.name = "worker", .count = standing.size - asked});
  const int count = CountOf(place->groups);
  if (count == standing.size) return absl::OkStatus();
  return InvalidArgument(
      GroupsText(place->groups), count == 1 ? " is " : " are ", count, count == 1 ? " task" : " tasks", ", but ",
      place->source == kFromFlags ? "--size is" : absl::StrCat(standing.scheduler, " has"), " ", standing.size,
      count > standing.size ? ": start more, or ask for fewer" : ": start fewer, or ask for more");
}

// The cluster of pods, whose names are known.
Status PlacePod(const PlaceRequest& request, Place* place) {
  const Standing::Pods& pods = *place->standing.pods;
  if (pods.domain.empty() && place->standing.size > 1) {
    return InvalidArgument(
        "the pod has no domain, so that the other pods could not be found by name: set `subdomain` "
        "to the name of a headless Service (for a StatefulSet: `serviceName`)");
  }
  JobSpec job;
  job.groups = place->groups;
  const std::vector<TaskName> tasks = TasksOf(job);
  ClusterAddresses cluster;
  for (size_t rank = 0; rank < tasks.size(); ++rank) {
    const int index = pods.job.empty() ? static_cast<int>(rank) : tasks[rank].index;
    if (!GroupOf(job, tasks[rank].job).side)
      cluster[tasks[rank].job].push_back(net::JoinHostPort(pods.Host(tasks[rank].job, index), request.port));
  }
  const int rank = place->standing.rank;
  const int size = pods.job.empty() ? static_cast<int>(tasks.size()) : GroupOf(job, pods.job).count;
  if (rank >= size) {
    return InvalidArgument(place->standing.scheduler, " has index ", rank, ", but there are ", size, " tasks",
                           pods.job.empty() ? "" : absl::StrCat(" of job ", pods.job));
  }
  place->task = pods.job.empty() ? tasks[rank] : TaskName{pods.job, rank};
  place->cluster = std::move(cluster);
  return absl::OkStatus();
}

}  // namespace

StatusOr<Place> FindPlace(const Surroundings& here, const PlaceRequest& request) {
  const bool by_flags = request.rank.has_value() || request.size.has_value();
  const auto config = here.environment.find(kTaskConfigVariable);
  if (!by_flags && config != here.environment.end() && !config->second.empty())
    return FromTaskConfig(here, request, config->second);
  Place place = {.source = kFromFlags};
  if (by_flags) {
    MR_ASSIGN_OR_RETURN(place.standing, FromFlags(here, request));
  } else {
    const PlaceSource* const source = InnermostSource(here);
    if (source == nullptr) return NoSource(here);
    place.source = source->name;
    std::vector<std::string> jobs;
    for (const TaskGroup& group : request.groups) jobs.push_back(group.name);
    StatusOr<Standing> standing = source->read(here, jobs);
    if (!standing.ok()) return WithPrefix(absl::StrCat(source->name, ": "), standing.status());
    place.standing = *std::move(standing);
  }
  MR_RETURN_IF_ERROR(CompleteGroups(request, &place));
  if (place.standing.pods.has_value()) {
    MR_RETURN_IF_ERROR(PlacePod(request, &place));
    return place;
  }
  MR_RETURN_IF_ERROR(CheckRanks(place.standing));
  if (!request.address.empty()) {
    place.standing.address = request.address;
  } else if (place.standing.local_size == place.standing.size) {
    place.standing.address = "localhost";  // all tasks are on this host
  }
  JobSpec job;
  job.groups = place.groups;
  place.task = TasksOf(job)[place.standing.rank];
  return place;
}

std::string Place::Explain() const {
  std::string text = absl::StrCat(
      "source: ", source, source == standing.scheduler ? "" : absl::StrCat(" (", standing.scheduler, ")"), "\n");
  for (const std::string& variable : standing.used) absl::StrAppend(&text, "  ", variable, "\n");
  absl::StrAppend(&text, "tasks: ", GroupsText(groups), "\n");
  absl::StrAppend(&text, "this is: ", task.ToString(),
                  source == kTaskConfigVariable || standing.pods.has_value()
                      ? ""
                      : absl::StrCat(", rank ", standing.rank, " of ", standing.size),
                  "\n");
  if (cluster.has_value()) {
    absl::StrAppend(&text, "TF_CONFIG: ", TfConfig(*cluster, task), "\n");
  } else {
    absl::StrAppend(&text, "address: ", standing.address, ", at a free port\n");
    if (standing.local_size > 0)
      absl::StrAppend(&text, "on this host: task ", standing.local_rank, " of ", standing.local_size, "\n");
    for (size_t rank = 0; rank < standing.hosts.size(); ++rank)
      absl::StrAppend(&text, "rank ", rank, ": ", standing.hosts[rank], "\n");
  }
  return text;
}

}  // namespace millrace::launch
