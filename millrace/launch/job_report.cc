#include "millrace/launch/job_report.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "millrace/launch/stream_lines.h"
#include "nlohmann/json.hpp"

namespace millrace::launch {
namespace {

using nlohmann::json;

constexpr char kCredentials[] = "credentials";
constexpr int kCoresColumn = 6;  // of the table, after the address

template <typename T>
json OrNull(const std::optional<T>& value) {
  return value ? json(*value) : json(nullptr);
}

// JSON has no numbers that are not finite.
json NumberJson(const std::optional<double>& value) {
  if (!value) return nullptr;
  if (std::isnan(*value)) return "NaN";
  if (std::isinf(*value)) return *value > 0 ? "Infinity" : "-Infinity";
  return *value;
}

template <typename T>
std::optional<T> Read(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number()) return std::nullopt;
  return found->get<T>();
}

std::string ReadText(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? ForTerminal(found->get<std::string>()) : "";
}

std::optional<double> ReadNumber(const json& object, const char* key) {
  const std::string text = ReadText(object, key);
  if (text == "NaN") return std::numeric_limits<double>::quiet_NaN();
  if (text == "Infinity") return std::numeric_limits<double>::infinity();
  if (text == "-Infinity") return -std::numeric_limits<double>::infinity();
  return Read<double>(object, key);
}

std::vector<JobEvent> ReadEvents(const json& report) {
  std::vector<JobEvent> events;
  const auto found = report.find("events");
  if (found == report.end() || !found->is_array()) return events;
  for (const json& event : *found) {
    if (!event.is_object()) continue;
    events.push_back({.number = Read<int64_t>(event, "number").value_or(0),
                      .seconds = Read<double>(event, "seconds").value_or(0),
                      .kind = ReadText(event, "kind"),
                      .task = ReadText(event, "task"),
                      .text = ReadText(event, "text")});
  }
  return events;
}

std::optional<JobReport::Checkpoint> ReadCheckpoint(const json& report) {
  const auto found = report.find("checkpoint");
  if (found == report.end() || !found->is_object()) return std::nullopt;
  return JobReport::Checkpoint{.task = ReadText(*found, "task"),
                               .step = Read<int64_t>(*found, "step").value_or(0),
                               .age_seconds = Read<double>(*found, "age_seconds").value_or(0)};
}

std::optional<TlsCredentials> ReadTls(const json& report) {
  const auto found = report.find(kCredentials);
  if (found == report.end() || !found->is_object()) return std::nullopt;
  const auto text = [&](const char* key) {
    const auto value = found->find(key);
    return value != found->end() && value->is_string() ? value->get<std::string>() : "";
  };
  return TlsCredentials{text("certificate"), text("key"), text("authority")};
}

RunState StateOf(const std::string& name) {
  for (const RunState state : kRunStates) {
    if (name == StateName(state)) return state;
  }
  return RunState::kPending;
}

}  // namespace

std::string JobReport::ToJson() const {
  json all = {{"pid", pid},
              {"command", command},
              {"directory", directory},
              {"state", StateName(state)},
              {"seconds", seconds},
              {"cause", cause},
              {"verdict", verdict},
              {"exit_code", OrNull(exit_code)},
              {"hang", hang},
              {"waits", waits},
              {"checkpoint", nullptr},
              {"events", json::array()},
              {"tasks", json::array()}};
  if (checkpoint.has_value()) {
    all["checkpoint"] = {
        {"task", checkpoint->task}, {"step", checkpoint->step}, {"age_seconds", checkpoint->age_seconds}};
  }
  if (!outputs.empty()) all["outputs"] = outputs;
  for (const JobEvent& event : events) {
    all["events"].push_back({{"number", event.number},
                             {"seconds", event.seconds},
                             {"kind", event.kind},
                             {"task", event.task},
                             {"text", event.text}});
  }
  if (credentials.has_value()) {
    all[kCredentials] = {
        {"certificate", credentials->certificate}, {"key", credentials->key}, {"authority", credentials->authority}};
  }
  for (const Task& task : tasks) {
    all["tasks"].push_back({{"task", task.task},
                            {"state", task.state},
                            {"host", task.host},
                            {"address", task.address},
                            {"pid", task.pid},
                            {"restarts", task.restarts},
                            {"seconds_in_state", task.seconds_in_state},
                            {"step", OrNull(task.step)},
                            {"loss", NumberJson(task.loss)},
                            {"steps_per_second", NumberJson(task.steps_per_second)},
                            {"exit_code", OrNull(task.exit_code)},
                            {"cores", task.cores},
                            {"phase", task.phase}});
  }
  return all.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

std::string JobReport::WithoutCredentials(absl::string_view text) {
  json all = json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (!all.is_object()) return "{}";
  all.erase(kCredentials);
  return all.dump(2, ' ', false, json::error_handler_t::replace);
}

StatusOr<JobReport> JobReport::FromJson(absl::string_view text) {
  const json all = json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (!all.is_object() || !all.contains("tasks") || !all["tasks"].is_array())
    return InvalidArgument("not the report of a job");
  JobReport report = {.pid = Read<int64_t>(all, "pid").value_or(0),
                      .command = ReadText(all, "command"),
                      .directory = ReadText(all, "directory"),
                      .state = StateOf(ReadText(all, "state")),
                      .seconds = Read<double>(all, "seconds").value_or(0),
                      .cause = ReadText(all, "cause"),
                      .verdict = ReadText(all, "verdict"),
                      .exit_code = Read<int>(all, "exit_code"),
                      .hang = ReadText(all, "hang")};
  report.credentials = ReadTls(all);
  report.checkpoint = ReadCheckpoint(all);
  report.events = ReadEvents(all);
  if (all.contains("outputs") && all["outputs"].is_object()) {
    for (const auto& [task, output] : all["outputs"].items()) {
      if (output.is_string()) report.outputs[task] = output.get<std::string>();
    }
  }
  if (all.contains("waits") && all["waits"].is_array()) {
    for (const json& wait : all["waits"]) {
      if (wait.is_string()) report.waits.push_back(ForTerminal(wait.get<std::string>()));
    }
  }
  for (const json& task : all["tasks"]) {
    if (!task.is_object()) return InvalidArgument("not the report of a task");
    report.tasks.push_back({.task = ReadText(task, "task"),
                            .state = ReadText(task, "state"),
                            .host = ReadText(task, "host"),
                            .address = ReadText(task, "address"),
                            .phase = ReadText(task, "phase"),
                            .cores = ReadText(task, "cores"),
                            .pid = Read<int64_t>(task, "pid").value_or(0),
                            .restarts = Read<int>(task, "restarts").value_or(0),
                            .seconds_in_state = Read<double>(task, "seconds_in_state").value_or(0),
                            .step = Read<int64_t>(task, "step"),
                            .loss = ReadNumber(task, "loss"),
                            .steps_per_second = ReadNumber(task, "steps_per_second"),
                            .exit_code = Read<int>(task, "exit_code")});
  }
  return report;
}

std::string JobReport::ToText() const {
  std::string text =
      absl::StrFormat("job %d: %s, for %s\n  %s\n", pid, StateName(state), ShortAge(absl::Seconds(seconds)), command);
  const bool any_bound = std::any_of(tasks.begin(), tasks.end(), [](const Task& task) { return !task.cores.empty(); });
  std::vector<std::vector<std::string>> rows = {
      {"TASK", "STATE", "SINCE", "PID", "HOST", "ADDRESS", "STEP", "LOSS", "STEPS/S", "RESTARTS", ""}};
  for (const Task& task : tasks) {
    rows.push_back({task.task, task.state, ShortAge(absl::Seconds(task.seconds_in_state)),
                    task.pid > 0 ? absl::StrCat(task.pid) : "-", task.host.empty() ? "-" : task.host,
                    task.address.empty() ? "-" : task.address, task.step ? absl::StrCat(*task.step) : "-",
                    task.loss ? absl::StrFormat("%.4g", *task.loss) : "-",
                    task.steps_per_second ? absl::StrFormat("%.1f", *task.steps_per_second) : "-",
                    absl::StrCat(task.restarts), task.phase});
  }
  if (any_bound) {
    rows[0].insert(rows[0].begin() + kCoresColumn, "CORES");
    for (size_t i = 0; i < tasks.size(); ++i)
      rows[1 + i].insert(rows[1 + i].begin() + kCoresColumn, tasks[i].cores.empty() ? "any" : tasks[i].cores);
  }
  std::vector<size_t> widths(rows[0].size());
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  for (const auto& row : rows) {
    std::string line = " ";
    for (size_t i = 0; i < row.size(); ++i)
      absl::StrAppend(&line, " ", row[i], std::string(widths[i] - row[i].size() + 1, ' '));
    absl::StrAppend(&text, absl::StripTrailingAsciiWhitespace(line), "\n");
  }
  if (checkpoint.has_value()) {
    absl::StrAppend(&text, "  checkpoint of step ", checkpoint->step, " by ", checkpoint->task, ", ",
                    ShortAge(absl::Seconds(checkpoint->age_seconds)), " ago\n");
  }
  if (!cause.empty()) absl::StrAppend(&text, "  is being ended: ", cause, "\n");
  if (!hang.empty()) absl::StrAppend(&text, "  hangs: ", hang, "\n");
  for (const std::string& wait : waits) absl::StrAppend(&text, "    ", wait, "\n");
  return text;
}

JobReport::Task ReportTask(const TaskRecord& record, const Training& training, const std::string& host,
                           const std::string& address, absl::Time now) {
  const TaskRow row = RowOf(record, training, host, now);
  JobReport::Task task = {.task = row.task,
                          .state = row.state,
                          .host = host,
                          .address = address,
                          .phase = row.phase,
                          .pid = record.pid,
                          .restarts = record.restarts,
                          .seconds_in_state = absl::ToDoubleSeconds(now - record.since),
                          .step = training.step(),
                          .loss = training.loss()};
  if (record.state == RunState::kRunning) task.steps_per_second = training.steps_per_second(now);
  if (record.exit) task.exit_code = record.exit->ShellCode();
  return task;
}

}  // namespace millrace::launch
