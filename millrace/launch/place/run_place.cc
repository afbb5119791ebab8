#include "millrace/launch/place/run_place.h"

#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_join.h"
#include "millrace/base/notice.h"
#include "millrace/cluster/server_environment.h"
#include "millrace/launch/keeper.h"
#include "millrace/launch/keeper_arrivals.h"
#include "millrace/launch/meeting/choose_guard.h"
#include "millrace/launch/meeting/join_meeting.h"
#include "millrace/launch/spawn.h"

namespace millrace::launch {
namespace {

int Complain(absl::string_view what, int code) {
  fprintf(stderr, "millrace place: %s\n", std::string(what).c_str());
  return code;
}

// The program with its place in arguments and environment, instead of this process.
int Become(const Place& place, const LauncherOptions& options) {
  const TaskGroup* group = nullptr;
  for (const TaskGroup& candidate : options.job.groups) {
    if (candidate.name == place.task.job) group = &candidate;
  }
  const bool own = group != nullptr && !group->program.empty();
  const auto tasks = place.cluster->find(place.task.job);
  const bool listed = tasks != place.cluster->end() && place.task.index < static_cast<int>(tasks->second.size());
  std::vector<std::string> words = FillIn(own ? group->program : options.job.program, *place.cluster, place.task,
                                          listed ? tasks->second[place.task.index] : "");
  if (options.host_flags && !own) {
    for (std::string& flag : HostFlags(*place.cluster, place.task)) words.push_back(std::move(flag));
  }
  // TF_CONFIG may have members that only the program knows.
  if (place.standing.pods.has_value()) setenv("TF_CONFIG", TfConfig(*place.cluster, place.task).c_str(), 1);
  setenv("MILLRACE_TASK", place.task.ToString().c_str(), 1);
  setenv("PYTHONUNBUFFERED", "1", 0);
  if (options.insecure) setenv(kInsecureVariable, "1", 1);
  if (options.notice_signal != SIGTERM)
    setenv(kNoticeSignalVariable, Notice{.signal = options.notice_signal}.SignalName().c_str(), 1);
  if (!options.file_roots.empty()) setenv(kFileRootVariable, absl::StrJoin(options.file_roots, ":").c_str(), 1);
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  execvp(arguments[0], arguments.data());
  const int error = errno;
  return Complain(absl::StrCat(words[0], ": ", strerror(error)), error == ENOENT ? 127 : 126);
}

int RunTask(const Place& place, const PlaceOptions& options, const MeetingPoint& point) {
  MeetingHello hello = {.rank = place.standing.rank,
                        .size = place.standing.size,
                        .jobs = JobsText(place.groups),
                        .address = place.standing.address};
  if (const char* gpus = getenv("CUDA_VISIBLE_DEVICES")) {
    hello.gpus = gpus;
    hello.has_gpus = true;
  }
  StatusOr<JoinedMeeting> joined = JoinMeeting(point, hello, options.launch.start_timeout);
  if (!joined.ok()) return Complain(absl::StrCat(place.task.ToString(), ": ", joined.status().message()), 2);
  KeeperOptions keeper = {.in = joined->socket.get(), .out = joined->socket.get()};
  keeper.silence = options.launch.remote.silence;
  keeper.grace = options.launch.job.grace;
  keeper.channel = joined->channel;
  keeper.received = std::move(joined->received);
  keeper.echo = true;
  return RunKeeper(keeper);
}

}  // namespace

int RunPlace(const Surroundings& here, const Place& place, PlaceOptions options) {
  if (place.cluster.has_value()) return Become(place, options.launch);
  StatusOr<MeetingPoint> point = ChooseMeetingPoint(here.environment, place.standing, options.meet);
  if (!point.ok()) return Complain(point.status().message(), 2);
  if (place.standing.rank > 0) return RunTask(place, options, *point);
  options.launch.meeting = {.point = *std::move(point), .address = place.standing.address, .own_task = 0};
  // Slurm ends its steps itself; a step's process may have been started by a script that has ended.
  if (place.source == kOpenMpiSource.name || place.source == kHydraSource.name)
    options.launch.meeting->parent = here.parent;
  options.launch.share_gpus = true;
  return RunLauncher(options.launch);
}

}  // namespace millrace::launch
