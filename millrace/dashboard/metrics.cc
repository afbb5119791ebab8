#include "millrace/dashboard/metrics.h"

#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "millrace/launch/run_state.h"

namespace millrace::dashboard {
namespace {

using nlohmann::json;
using Labels = std::vector<std::pair<std::string, std::string>>;

std::string ValueText(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  if (value == std::floor(value) && std::fabs(value) < 1e15) return absl::StrFormat("%.0f", value);
  return absl::StrFormat("%.17g", value);
}

std::string LabelsText(const Labels& labels) {
  if (labels.empty()) return "";
  std::string text = "{";
  for (const auto& [name, value] : labels) {
    absl::StrAppend(&text, text.size() > 1 ? "," : "", name, "=\"",
                    absl::StrReplaceAll(value, {{"\\", "\\\\"}, {"\"", "\\\""}, {"\n", "\\n"}}), "\"");
  }
  return absl::StrCat(text, "}");
}

// Metrics with their series, each under its one description.
class Exposition {
 public:
  void Family(const char* name, const char* type, const char* help) {
    absl::StrAppend(&text_, "# HELP ", name, " ", help, "\n# TYPE ", name, " ", type, "\n");
    name_ = name;
  }
  void Add(const Labels& labels, double value) {
    absl::StrAppend(&text_, name_, LabelsText(labels), " ", ValueText(value), "\n");
  }
  std::string Take() { return std::move(text_); }

 private:
  std::string text_, name_;
};

// A number, or one of the words that stand for numbers in the document.
std::optional<double> NumberOf(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) return std::nullopt;
  if (found->is_boolean()) return found->get<bool>() ? 1 : 0;
  if (found->is_number()) return found->get<double>();
  if (*found == "NaN") return std::numeric_limits<double>::quiet_NaN();
  if (*found == "Infinity") return std::numeric_limits<double>::infinity();
  if (*found == "-Infinity") return -std::numeric_limits<double>::infinity();
  return std::nullopt;
}

const json& Member(const json& object, const char* key) {
  static const json* const kNothing = new json(json::object());
  const auto found = object.find(key);
  return found != object.end() && found->is_object() ? *found : *kNothing;
}

Labels TaskLabels(const std::string& name) {
  const size_t slash = name.find('/');
  if (slash == std::string::npos) return {{"job", name}, {"task", "0"}};
  return {{"job", name.substr(0, slash)}, {"task", name.substr(slash + 1)}};
}

struct TaskMetric {
  const char* name;
  const char* type;
  const char* help;
  const char* key;  // of a task in the document
};

constexpr TaskMetric kTaskMetrics[] = {
    {"millrace_steps_total", "counter",
     "Steps as the task reports them: the global step of a training program, otherwise the steps of its sessions.",
     "step"},
    {"millrace_session_steps_total", "counter", "Steps that this task was the master of, since its start.",
     "steps_finished"},
    {"millrace_parts_total", "counter", "Parts of steps that this task has run, since its start.", "parts_finished"},
    {"millrace_steps_per_second", "gauge", "Speed over the last seconds.", "steps_per_second"},
    {"millrace_loss", "gauge", "The last loss that the task reported.", "loss"},
    {"millrace_task_cpu_seconds_total", "counter", "Processor time of the task's process, user and system.",
     "cpu_seconds"},
    {"millrace_task_busy_cores", "gauge", "Cores that the task kept busy between the last two looks.", "busy_cores"},
    {"millrace_task_usable_cores", "gauge", "Cores that the task may use.", "usable_cores"},
    {"millrace_task_memory_bytes", "gauge", "Bytes of tensors in the task's process.", "memory_bytes"},
    {"millrace_task_sent_bytes_total", "counter", "Bytes that the task has sent to others over step lanes.",
     "bytes_sent"},
    {"millrace_task_received_bytes_total", "counter", "Bytes that the task has received over step lanes.",
     "bytes_received"},
};

void AddTaskMetrics(const json& tasks, Exposition* out) {
  for (const TaskMetric& metric : kTaskMetrics) {
    out->Family(metric.name, metric.type, metric.help);
    for (const auto& [name, task] : tasks.items()) {
      if (const std::optional<double> value = NumberOf(task, metric.key)) out->Add(TaskLabels(name), *value);
    }
  }
  out->Family("millrace_task_up", "gauge", "1 if the task runs, as far as its launcher and its answers say.");
  for (const auto& [name, task] : tasks.items())
    out->Add(TaskLabels(name), task.contains("state") && task["state"] == "running" && !task.contains("error") ? 1 : 0);
  out->Family("millrace_task_restarts_total", "counter", "How often the launcher has started the task again.");
  for (const auto& [name, task] : tasks.items()) out->Add(TaskLabels(name), NumberOf(task, "restarts").value_or(0));
}

void AddJobMetrics(const json& document, const json& tasks, Exposition* out) {
  out->Family("millrace_tasks", "gauge", "The number of tasks in each state.");
  std::map<std::string, int> counts;
  for (const launch::RunState state : launch::kRunStates) counts[launch::StateName(state)] = 0;
  for (const auto& [name, task] : tasks.items()) {
    if (!task.contains("state")) continue;
    const auto count = counts.find(task["state"].get<std::string>());
    if (count != counts.end()) ++count->second;
  }
  for (const auto& [state, count] : counts) out->Add({{"state", state}}, count);
  out->Family("millrace_job_ended", "gauge", "1 once the job is over.");
  out->Add({}, NumberOf(document, "ended").value_or(0));
  out->Family("millrace_job_start_time_seconds", "gauge", "When the job was launched, as Unix time.");
  out->Add({}, NumberOf(document, "began").value_or(0));
  out->Family("millrace_hang", "gauge", "1 while the job hangs, with a known cause.");
  out->Add({}, Member(document, "hang").contains("cause") ? 1 : 0);
  out->Family("millrace_waits", "gauge", "Waits that have lasted for more than a second.");
  const auto waits = document.find("waits");
  out->Add({}, (waits != document.end() && waits->is_array() ? static_cast<double>(waits->size()) : 0) +
                   NumberOf(document, "more_waits").value_or(0));
  out->Family("millrace_stragglers", "gauge", "Tasks that hold the others up.");
  out->Add({}, static_cast<double>(Member(document, "stragglers").size()));
  if (const json& checkpoint = Member(document, "checkpoint"); !checkpoint.empty()) {
    out->Family("millrace_checkpoint_step", "gauge", "The step of the newest whole checkpoint.");
    out->Add({}, NumberOf(checkpoint, "step").value_or(0));
    out->Family("millrace_checkpoint_timestamp_seconds", "gauge", "When that checkpoint was reported, as Unix time.");
    out->Add({}, NumberOf(document, "began").value_or(0) + NumberOf(checkpoint, "at").value_or(0));
  }
}

void AddVariableMetrics(const json& variables, Exposition* out) {
  out->Family("millrace_variables", "gauge", "The number of variables on the task.");
  for (const auto& [name, task] : variables.items()) out->Add(TaskLabels(name), NumberOf(task, "count").value_or(0));
  out->Family("millrace_variable_bytes", "gauge", "Bytes of the variables on the task.");
  for (const auto& [name, task] : variables.items()) out->Add(TaskLabels(name), NumberOf(task, "bytes").value_or(0));
}

}  // namespace

std::string MetricsText(const json& document, const OwnFigures& own) {
  Exposition out;
  const json& tasks = Member(document, "tasks");
  AddJobMetrics(document, tasks, &out);
  AddTaskMetrics(tasks, &out);
  AddVariableMetrics(Member(document, "variables"), &out);
  out.Family("millrace_dashboard_viewers", "gauge", "Pages that are open.");
  out.Add({}, own.viewers);
  out.Family("process_cpu_seconds_total", "counter", "Processor time of the dashboard itself.");
  out.Add({}, own.cpu_seconds);
  out.Family("process_resident_memory_bytes", "gauge", "Memory of the dashboard itself.");
  out.Add({}, own.resident_bytes);
  return out.Take();
}

}  // namespace millrace::dashboard
