#include "millrace/tools/status_report.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "millrace/net/connection_table.h"
#include "millrace/tools/status_traffic.h"
#include "millrace/tools/text_table.h"
#include "nlohmann/json.hpp"

namespace millrace {
namespace {

using nlohmann::json;

// Leaves out the replica, of which there is only one.
std::string Short(absl::string_view task) { return absl::StrReplaceAll(task, {{"/replica:0", ""}}); }

std::string DeviceText(absl::string_view device) {
  const size_t at = device.find("/device:");
  return std::string(at == absl::string_view::npos ? device : device.substr(at + 8));
}

std::string ClientText(const std::string& client) {
  if (client.empty()) return "in this process";
  const std::string normal = net::NormalPeer(client);
  return normal.empty() ? client : normal;
}

// "12.0 MB", "12.0 MB of 1.0 GB".
std::string MemoryText(int64_t bytes, int64_t limit) {
  return absl::StrCat(BytesText(bytes), limit > 0 ? absl::StrCat(" of ", BytesText(limit)) : "");
}

// `rate` may be null.
void AppendTask(const TaskStatus& status, const TaskRate* rate, std::string* text) {
  const auto age = [&](int64_t micros) { return AgeText(absl::Microseconds(status.now_micros() - micros)); };
  TextTable devices, memory, variables, sessions, finished, records, steps, waits;
  for (const TaskStatus::Device& device : status.devices()) {
    devices.Add({DeviceText(device.name()), absl::StrFormat("incarnation %016x", device.incarnation()), device.model(),
                 device.memory_limit_bytes() > 0
                     ? absl::StrCat("memory ", MemoryText(device.memory_bytes(), device.memory_limit_bytes()))
                     : ""});
  }
  for (const TaskStatus::Session& session : status.sessions()) {
    const bool here = session.master() == status.task();
    sessions.Add({session.handle(), absl::StrCat("open for ", age(session.opened_micros())),
                  absl::StrCat(session.running_steps(), " running"),
                  absl::StrCat(here ? absl::StrCat(session.nodes(), " nodes, client ", ClientText(session.client()))
                                    : absl::StrCat("driven by ", session.master().empty() ? ClientText(session.client())
                                                                                          : Short(session.master())),
                               ", memory ", MemoryText(session.memory_bytes(), session.memory_limit_bytes()))});
  }
  for (const TaskStatus::Step& step : status.steps()) {
    std::vector<std::string> tasks;
    for (const std::string& task : step.waits_for()) tasks.push_back(Short(task));
    steps.Add({absl::StrCat(step.id()), absl::StrCat("session ", step.session().empty() ? "-" : step.session()),
               absl::StrCat("for ", age(step.since_micros())),
               !step.driven_here() ? "a part"
               : tasks.empty()     ? "ending"
                                   : absl::StrCat("waits for ", absl::StrJoin(tasks, ", "))});
  }
  if (status.steps_finished() > 0) {
    finished.Add({absl::StrCat(status.steps_finished(), " steps"),
                  absl::StrCat("the last one ", age(status.last_step_finished_micros()), " ago")});
  }
  if (status.parts_finished() > 0) {
    finished.Add({absl::StrCat(status.parts_finished(), " parts"),
                  absl::StrCat("the last one ", age(status.last_part_finished_micros()), " ago")});
  }
  for (const TaskStatus::Wait& wait : status.waits()) {
    waits.Add({wait.step_id() == 0 ? "-" : absl::StrCat("step ", wait.step_id()),
               absl::StrCat("for ", age(wait.since_micros())), absl::StrCat(wait.node(), ": ", wait.what())});
  }
  if (status.run_records() > 0) {
    records.Add(
        {absl::StrCat(status.run_records(), status.run_records() == 1 ? " run" : " runs", " that may be repeated"),
         MemoryText(status.run_record_bytes(), status.run_record_limit_bytes())});
  }
  if (status.variable_count() > 0) {
    variables.Add(
        {absl::StrCat(status.variable_count(), status.variable_count() == 1 ? " variable" : " variables"),
         BytesText(status.variable_bytes()),
         absl::StrCat("the largest is ", status.variables(0).name(), ", ", BytesText(status.variables(0).bytes()))});
  }
  memory.Add({MemoryText(status.memory_bytes(), status.memory_limit_bytes())});
  devices.AppendTo("devices", text);
  if (status.memory_limit_bytes() > 0) memory.AppendTo("memory", text);
  variables.AppendTo("variables", text);
  sessions.AppendTo("sessions", text);
  finished.AppendTo("finished", text);
  records.AppendTo("records", text);
  AppendTraffic(status, rate, text);
  steps.AppendTo("steps", text);
  waits.AppendTo("waits", text);
}

const char* KindText(TaskStatus::Wait::Kind kind) {
  switch (kind) {
    case TaskStatus::Wait::TENSOR:
      return "tensor";
    case TaskStatus::Wait::ELEMENTS:
      return "elements";
    case TaskStatus::Wait::ROOM:
      return "room";
    case TaskStatus::Wait::PEER:
      return "peer";
    default:
      return "other";
  }
}

std::string TimeText(int64_t micros) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", absl::FromUnixMicros(micros), absl::UTCTimeZone());
}

json TaskJson(const TaskStatus& status) {
  const auto age = [&](int64_t micros) { return static_cast<double>(status.now_micros() - micros) / 1e6; };
  json task = {
      {"devices", json::array()}, {"sessions", json::array()}, {"steps", json::array()}, {"waits", json::array()}};
  for (const TaskStatus::Device& device : status.devices()) {
    task["devices"].push_back(
        {{"name", device.name()}, {"type", device.type()}, {"incarnation", std::to_string(device.incarnation())}});
    if (device.memory_limit_bytes() == 0) continue;
    task["devices"].back()["model"] = device.model();
    task["devices"].back()["memory_bytes"] = device.memory_bytes();
    task["devices"].back()["memory_limit_bytes"] = device.memory_limit_bytes();
  }
  if (status.task().empty()) return task;
  task["started"] = TimeText(status.started_micros());
  task["up_seconds"] = age(status.started_micros());
  task["steps_finished"] = status.steps_finished();
  task["parts_finished"] = status.parts_finished();
  task["memory_bytes"] = status.memory_bytes();
  task["memory_limit_bytes"] = status.memory_limit_bytes();
  task["run_records"] = status.run_records();
  task["run_record_bytes"] = status.run_record_bytes();
  task["run_record_limit_bytes"] = status.run_record_limit_bytes();
  task["variable_count"] = status.variable_count();
  task["variable_bytes"] = status.variable_bytes();
  task["variables"] = json::array();
  for (const TaskStatus::Variable& variable : status.variables()) {
    task["variables"].push_back({{"name", variable.name()},
                                 {"dtype", variable.dtype()},
                                 {"shape", std::vector<int64_t>(variable.shape().begin(), variable.shape().end())},
                                 {"bytes", variable.bytes()}});
  }
  if (status.steps_finished() > 0) task["seconds_since_last_step"] = age(status.last_step_finished_micros());
  if (status.parts_finished() > 0) task["seconds_since_last_part"] = age(status.last_part_finished_micros());
  for (const TaskStatus::Session& session : status.sessions()) {
    task["sessions"].push_back({{"handle", session.handle()},
                                {"master", session.master()},
                                {"client", session.client()},
                                {"nodes", session.nodes()},
                                {"running_steps", session.running_steps()},
                                {"steps_finished", session.steps_finished()},
                                {"memory_bytes", session.memory_bytes()},
                                {"memory_limit_bytes", session.memory_limit_bytes()},
                                {"opened", TimeText(session.opened_micros())},
                                {"age_seconds", age(session.opened_micros())}});
  }
  for (const TaskStatus::Step& step : status.steps()) {
    task["steps"].push_back(
        {{"id", std::to_string(step.id())},
         {"session", step.session()},
         {"driven_here", step.driven_here()},
         {"waits_for", json(std::vector<std::string>(step.waits_for().begin(), step.waits_for().end()))},
         {"since", TimeText(step.since_micros())},
         {"age_seconds", age(step.since_micros())}});
  }
  for (const TaskStatus::Wait& wait : status.waits()) {
    task["waits"].push_back({{"node", wait.node()},
                             {"what", wait.what()},
                             {"kind", KindText(wait.kind())},
                             {"peer", wait.peer()},
                             {"tensor", wait.tensor()},
                             {"resource", wait.resource()},
                             {"has", wait.has()},
                             {"needs", wait.needs()},
                             {"step", std::to_string(wait.step_id())},
                             {"since", TimeText(wait.since_micros())},
                             {"age_seconds", age(wait.since_micros())}});
  }
  return task;
}

}  // namespace

std::string AgeText(absl::Duration age) {
  const double seconds = std::max(0.0, absl::ToDoubleSeconds(age));
  if (seconds < 0.9995) return absl::StrFormat("%.0f ms", seconds * 1e3);
  if (seconds < 99.95) return absl::StrFormat("%.1f s", seconds);
  if (seconds < 5997) return absl::StrFormat("%.1f min", seconds / 60);
  if (seconds < 172800) return absl::StrFormat("%.1f h", seconds / 3600);
  return absl::StrFormat("%.1f days", seconds / 86400);
}

const TaskRate* FindRate(const Bottleneck* bottleneck, const TaskView& view) {
  if (bottleneck == nullptr) return nullptr;
  for (const TaskRate& rate : bottleneck->tasks) {
    if (rate.task == view.task && rate.address == view.address) return &rate;
  }
  return nullptr;
}

bool IsHang(const HangReport& hang) { return hang.somebody_waits && !hang.cause.empty(); }

std::string StatusText(const std::string& target, const std::vector<TaskView>& tasks, const HangReport& hang,
                       const Bottleneck* bottleneck) {
  const size_t silent =
      std::count_if(tasks.begin(), tasks.end(), [](const TaskView& task) { return !task.answer.ok(); });
  std::string text = absl::StrCat(target, ": ", tasks.size(), tasks.size() == 1 ? " task" : " tasks");
  if (silent > 0) absl::StrAppend(&text, ", ", silent, silent == 1 ? " does not answer" : " do not answer");
  absl::StrAppend(&text, "\n");
  size_t name_width = 0, address_width = 0;
  const auto name = [](const TaskView& task) {
    return task.task.empty() ? std::string("(unknown task)") : Short(task.task);
  };
  for (const TaskView& task : tasks) {
    name_width = std::max(name_width, name(task).size());
    address_width = std::max(address_width, task.address.size());
  }
  for (const TaskView& task : tasks) {
    const std::string state =
        !task.answer.ok() ? absl::StrCat("NO ANSWER: ", task.answer.message())
        : task.is_tensorflow
            ? "TensorFlow, which reports only its devices"
            : absl::StrCat("up for ",
                           AgeText(absl::Microseconds(task.status.now_micros() - task.status.started_micros())));
    absl::StrAppend(&text, "\n",
                    absl::StrFormat("%-*s  %-*s  %s", name_width, name(task), address_width, task.address, state),
                    "\n");
    if (task.answer.ok()) AppendTask(task.status, FindRate(bottleneck, task), &text);
  }
  if (IsHang(hang)) {
    absl::StrAppend(&text, "\nHANGS: ", hang.cause, "\n");
    for (const std::string& line : hang.waits) absl::StrAppend(&text, "  ", line, "\n");
  }
  for (const std::string& line : hang.busy) absl::StrAppend(&text, "\nBUSY: ", line, "\n");
  if (bottleneck != nullptr) absl::StrAppend(&text, "\nBOTTLENECK: ", bottleneck->line, "\n");
  return text;
}

std::string StatusJson(const std::string& target, const std::vector<TaskView>& tasks, const HangReport& hang,
                       const Bottleneck* bottleneck) {
  json all = {{"target", target}, {"tasks", json::array()}, {"hang", nullptr}, {"bottleneck", nullptr}};
  if (bottleneck != nullptr) {
    all["bottleneck"] = {{"kind", BottleneckName(bottleneck->kind)}, {"line", bottleneck->line}, {"suggests", nullptr}};
    if (bottleneck->ps > 0) all["bottleneck"]["suggests"] = {{"ps", bottleneck->ps}, {"workers", bottleneck->workers}};
  }
  if (IsHang(hang)) all["hang"] = {{"cause", hang.cause}, {"waits", hang.waits}, {"busy", hang.busy}};
  for (const TaskView& view : tasks) {
    json task = TaskJson(view.status);
    AddTrafficJson(view.status, FindRate(bottleneck, view), &task);
    task["task"] = view.task;
    task["address"] = view.address;
    task["answered"] = view.answer.ok();
    if (view.answer.ok()) {
      task["kind"] = view.is_tensorflow ? "tensorflow" : "millrace";
    } else {
      task["error"] = view.answer.ToString();
    }
    all["tasks"].push_back(std::move(task));
  }
  // Names come from peers and may be any bytes.
  return all.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace millrace
