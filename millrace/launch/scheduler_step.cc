#include "millrace/launch/scheduler_step.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include "absl/strings/str_join.h"
#include "millrace/launch/exit_status.h"
#include "millrace/launch/spawn.h"
#include "nlohmann/json.hpp"

namespace millrace::launch {

std::vector<std::string> StepCommand(const std::vector<std::string>& srun, const std::string& millrace,
                                     const std::vector<int>& tasks, const std::vector<std::string>& hosts) {
  std::vector<std::string> words = srun;
  const std::set<std::string> nodes(hosts.begin(), hosts.end());
  // Beside whatever else runs in the allocation, one keeper for each task on its node, which may use all cores that the
  // allocation has there, and no wait for others' ends.
  for (const std::string& word :
       {absl::StrCat("--ntasks=", tasks.size()), absl::StrCat("--nodes=", nodes.size()),
        absl::StrCat("--nodelist=", absl::StrJoin(hosts, ",")), std::string("--distribution=arbitrary"),
        std::string("--overlap"), std::string("--overcommit"), std::string("--kill-on-bad-exit=0"),
        std::string("--wait=0"), std::string("--input=none"), std::string("--mpi=none"), std::string("--cpu-bind=none"),
        std::string("--quiet")})
    words.push_back(word);
  words.push_back(millrace);
  words.push_back("task-keeper");
  words.push_back("--tasks");
  words.push_back(absl::StrJoin(tasks, ","));
  return words;
}

std::string EncodeMeeting(const MeetingPoint& point, int size, const std::string& jobs) {
  const nlohmann::json text = {
      {"label", point.label}, {"hosts", point.hosts}, {"ports", point.ports}, {"size", size}, {"jobs", jobs}};
  return text.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

StatusOr<StepMeeting> DecodeMeeting(absl::string_view text) {
  const nlohmann::json read = nlohmann::json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  const auto bad = [] { return InvalidArgument(kMeetingVariable, " is malformed"); };
  if (!read.is_object()) return bad();
  for (const char* name : {"label", "hosts", "ports", "size", "jobs"}) {
    if (!read.contains(name)) return bad();
  }
  if (!read["label"].is_string() || !read["jobs"].is_string() || !read["size"].is_number_integer() ||
      !read["hosts"].is_array() || !read["ports"].is_array())
    return bad();
  StepMeeting meeting;
  meeting.point.label = read["label"].get<std::string>();
  for (const auto& host : read["hosts"]) {
    if (!host.is_string()) return bad();
    meeting.point.hosts.push_back(host.get<std::string>());
  }
  for (const auto& port : read["ports"]) {
    if (!port.is_number_integer()) return bad();
    meeting.point.ports.push_back(port.get<int>());
  }
  meeting.size = read["size"].get<int>();
  meeting.jobs = read["jobs"].get<std::string>();
  return meeting;
}

Status SchedulerSteps::Start(const std::vector<std::string>& command, const std::vector<std::string>& environment,
                             std::vector<int> tasks) {
  // What srun says goes where the launcher's own messages go.
  const SpawnOptions options = {
      .arguments = command, .environment = environment, .descriptors = {-1, STDERR_FILENO, STDERR_FILENO}};
  SpawnError why;
  const pid_t pid = Spawn(options, &why);
  if (pid < 0) return Unavailable(why.text);
  steps_.push_back({pid, std::move(tasks)});
  return absl::OkStatus();
}

void SchedulerSteps::OnReaped(pid_t pid, int wait_status,
                              absl::FunctionRef<void(int task, const std::string& why)> on_task) {
  const auto step = std::find_if(steps_.begin(), steps_.end(), [&](const Step& s) { return s.pid == pid; });
  if (step == steps_.end()) return;
  const std::vector<int> tasks = std::move(step->tasks);
  steps_.erase(step);
  for (const int task : tasks) on_task(task, absl::StrCat("srun ", ExitStatus::OfWait(wait_status).ToString()));
}

void SchedulerSteps::Signal(int signal) const {
  for (const Step& step : steps_) kill(step.pid, signal);
}

std::vector<pid_t> SchedulerSteps::pids() const {
  std::vector<pid_t> pids;
  for (const Step& step : steps_) pids.push_back(step.pid);
  return pids;
}

}  // namespace millrace::launch
