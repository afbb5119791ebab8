#include "millrace/launch/job_spec.h"

#include <algorithm>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "millrace/net/address.h"

namespace millrace::launch {
namespace {

constexpr int kMaxTasks = 10000;
constexpr int kDefaultRestarts = 3;
constexpr absl::Duration kLongestRestartPause = absl::Minutes(1);

bool IsJobName(absl::string_view name) {
  return !name.empty() && absl::ascii_isalpha(name[0]) &&
         std::all_of(name.begin(), name.end(), [](char c) { return absl::ascii_isalnum(c) || c == '_'; });
}

bool ParseSlots(const std::string& text, int* slots) {
  return absl::SimpleAtoi(text, slots) && *slots >= 1 && *slots <= kMaxTasks;
}

}  // namespace

absl::Duration RestartPolicy::Pause(int restarts_before) const {
  absl::Duration now = pause;
  for (int i = 0; i < restarts_before && now < kLongestRestartPause; ++i) now *= 2;
  return std::min(now, std::max(pause, kLongestRestartPause));
}

StatusOr<RestartPolicy> RestartPolicy::Parse(absl::string_view text) {
  if (text == "never") return RestartPolicy{};
  absl::string_view rest = text;
  if (absl::ConsumePrefix(&rest, "on-failure")) {
    if (rest.empty()) return RestartPolicy{.limit = kDefaultRestarts};
    int limit;
    if (absl::ConsumePrefix(&rest, ":") && absl::SimpleAtoi(rest, &limit) && limit > 0)
      return RestartPolicy{.limit = limit};
  }
  return InvalidArgument(
      "'", text, "' is not a restart policy; use never, on-failure, or on-failure:N for at most N restarts per task");
}

std::string RestartPolicy::ToString() const { return limit == 0 ? "never" : absl::StrCat("on-failure:", limit); }

std::string Host::Address() const {
  if (!address.empty()) return address;
  const size_t at = name.rfind('@');
  return at == std::string::npos ? name : name.substr(at + 1);
}

bool TaskGroup::trains() const { return !side && (name == "worker" || name == "chief" || name == "master"); }

int JobSpec::task_count() const {
  int count = 0;
  for (const TaskGroup& group : groups) count += group.count;
  return count;
}

Status JobSpec::Check() const {
  std::set<std::string> names;
  int64_t count = 0;
  for (const TaskGroup& group : groups) {
    if (!IsJobName(group.name))
      return InvalidArgument("'", group.name,
                             "' is not a valid job name: use letters, digits and _, starting with a letter");
    if (!names.insert(group.name).second) return InvalidArgument("job '", group.name, "' is given twice");
    if (group.count < 0) return InvalidArgument("job '", group.name, "' cannot have ", group.count, " tasks");
    count += group.count;
    if (group.count > 0 && program.empty() && group.program.empty()) {
      return InvalidArgument(
          "no program: put it after --, as in `millrace launch --ps 1 --workers 2 -- ./my_program --my_flags`");
    }
  }
  if (count == 0) return InvalidArgument("no tasks: give --workers N, --ps N or --job NAME=N");
  if (count > kMaxTasks) return InvalidArgument(count, " tasks are more than ", kMaxTasks);
  const auto loopback = [](const Host& host) { return net::IsLoopback(host.Address()); };
  const auto here = std::find_if(hosts.begin(), hosts.end(), loopback);
  if (here != hosts.end() && !std::all_of(hosts.begin(), hosts.end(), loopback)) {
    return InvalidArgument("the other hosts cannot reach '", here->name,
                           "' by that name: add address=HOST to its line");
  }
  if (bind_workers &&
      std::none_of(groups.begin(), groups.end(), [](const TaskGroup& g) { return g.trains() && g.count > 0; })) {
    return InvalidArgument("--bind_workers: there is no job 'worker' or 'chief' to bind");
  }
  if (grace < absl::ZeroDuration()) return InvalidArgument("--grace cannot be negative");
  return PlaceTasks(*this).status();
}

const TaskGroup& GroupOf(const JobSpec& job, const std::string& name) {
  const auto found =
      std::find_if(job.groups.begin(), job.groups.end(), [&](const TaskGroup& g) { return g.name == name; });
  MR_CHECK(found != job.groups.end());
  return *found;
}

std::vector<TaskName> TasksOf(const JobSpec& job) {
  std::vector<TaskName> tasks;
  for (const TaskGroup& group : job.groups) {
    for (int i = 0; i < group.count; ++i) tasks.push_back({group.name, i});
  }
  return tasks;
}

StatusOr<std::vector<int>> PlaceTasks(const JobSpec& job) {
  std::vector<int> places(job.task_count(), -1);
  if (job.hosts.empty()) return places;
  size_t next = 0;
  for (int host = 0; host < static_cast<int>(job.hosts.size()); ++host) {
    for (int slot = 0; slot < job.hosts[host].slots && next < places.size(); ++slot) places[next++] = host;
  }
  if (next < places.size()) {
    return ResourceExhausted("the hosts have ", next, next == 1 ? " slot" : " slots", " for ", places.size(),
                             " tasks: add hosts, or slots=N to their lines");
  }
  return places;
}

StatusOr<std::vector<Host>> ParseHosts(absl::string_view text) {
  std::vector<Host> hosts;
  int number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    line = line.substr(0, line.find('#'));
    const std::vector<std::string> words = absl::StrSplit(line, absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
    if (words.empty()) continue;
    Host host = {.name = words[0]};
    // ssh would interpret it as a flag.
    if (host.name[0] == '-' || host.name.find('=') != std::string::npos) {
      return InvalidArgument("line ", number, ": '", host.name,
                             "' is not a host; lines are: host [slots=N] [address=HOST]");
    }
    // MPICH's way. More than one colon is an IPv6 address.
    if (const size_t colon = host.name.find(':'); colon != std::string::npos && colon == host.name.rfind(':')) {
      if (!ParseSlots(host.name.substr(colon + 1), &host.slots))
        return InvalidArgument("line ", number, ": '", host.name, "' is neither a host nor host:SLOTS");
      host.name.resize(colon);
    }
    for (size_t i = 1; i < words.size(); ++i) {
      const std::pair<std::string, std::string> part = absl::StrSplit(words[i], absl::MaxSplits('=', 1));
      int most;
      if (part.first == "slots") {
        if (!ParseSlots(part.second, &host.slots)) {
          return InvalidArgument("line ", number, ": slots is '", part.second, "' and must be a number of at least 1");
        }
      } else if ((part.first == "max_slots" || part.first == "max-slots") && ParseSlots(part.second, &most)) {
        // Open MPI's limit for more tasks than slots, which are not placed here.
      } else if (part.first == "address" && !part.second.empty()) {
        host.address = part.second;
      } else {
        return InvalidArgument("line ", number, ": '", words[i],
                               "' is not known; lines are: host [slots=N] [address=HOST]");
      }
    }
    hosts.push_back(std::move(host));
  }
  if (hosts.empty()) return InvalidArgument("it contains no hosts; lines are: host [slots=N] [address=HOST]");
  return hosts;
}

StatusOr<std::vector<std::string>> SplitCommand(absl::string_view text) {
  std::vector<std::string> words;
  std::string word;
  bool in_word = false;
  char quote = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quote != 0 && c == quote) {
      quote = 0;
    } else if (c == '\\' && quote != '\'') {
      if (++i == text.size()) return InvalidArgument("nothing follows the backslash at the end of '", text, "'");
      word.push_back(text[i]);
      in_word = true;
    } else if (quote != 0) {
      word.push_back(c);
    } else if (c == '\'' || c == '"') {
      quote = c;
      in_word = true;
    } else if (absl::ascii_isspace(c)) {
      if (in_word) words.push_back(std::move(word));
      word.clear();
      in_word = false;
    } else {
      word.push_back(c);
      in_word = true;
    }
  }
  if (quote != 0) return InvalidArgument("a quote is not closed in '", text, "'");
  if (in_word) words.push_back(std::move(word));
  if (words.empty()) return InvalidArgument("an empty command");
  return words;
}

}  // namespace millrace::launch
