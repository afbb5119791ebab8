#include "millrace/dashboard/page_state.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/match.h"
#include "millrace/base/version.h"
#include "millrace/dashboard/plan.h"

namespace millrace::dashboard {
namespace {

using nlohmann::json;

// Waits that are shorter belong to every step.
constexpr double kShownWait = 1;
// What a page shows of these at most; the longest waits, the busiest links.
constexpr size_t kMaxWaits = 100, kMaxLinks = 100;

double RoundTo(double value, double unit) { return std::round(value / unit) * unit; }
// Three or four digits are what a person reads; more would make every update longer.
double Digits(double value, int digits = 4) {
  if (value == 0 || !std::isfinite(value)) return 0;
  const double unit = std::pow(10.0, std::floor(std::log10(std::fabs(value))) + 1 - digits);
  const double rounded = unit > 0 ? std::round(value / unit) * unit : value;
  return std::isfinite(rounded) ? rounded : value;
}

json NumberOrWord(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return Digits(value);
}

std::string JobOfTask(absl::string_view task) { return std::string(task.substr(0, task.find('/'))); }

// A member is there only if it says something.
void Set(json* object, const char* key, const std::string& text) {
  if (!text.empty()) (*object)[key] = text;
}

json LaunchedJson(const launch::JobReport& report, const launch::JobReport::Task& task) {
  json entry = {{"state", task.state}, {"since", RoundTo(report.seconds - task.seconds_in_state, 0.1)}};
  Set(&entry, "host", task.host);
  Set(&entry, "cores", task.cores);
  Set(&entry, "phase", task.phase);
  if (task.restarts > 0) entry["restarts"] = task.restarts;
  if (task.step) entry["step"] = *task.step;
  if (task.loss) entry["loss"] = NumberOrWord(*task.loss);
  if (task.steps_per_second) entry["steps_per_second"] = NumberOrWord(*task.steps_per_second);
  if (task.exit_code) entry["exit_code"] = *task.exit_code;
  return entry;
}

void AddAnswer(const TaskView& view, const TaskRate* rate, bool launched, json* entry) {
  if (!launched) Set(entry, "host", HostOf(view.address));
  if (!launched) (*entry)["state"] = view.answer.ok() ? "running" : "no answer";
  if (!view.answer.ok()) {
    Set(entry, "error", std::string(view.answer.message()));
    return;
  }
  if (view.is_tensorflow) {
    (*entry)["kind"] = "tensorflow";
    return;
  }
  const TaskStatus& status = view.status;
  (*entry)["answers"] = true;
  (*entry)["memory_bytes"] = status.memory_bytes();
  if (status.memory_limit_bytes() > 0) (*entry)["memory_limit_bytes"] = status.memory_limit_bytes();
  (*entry)["usable_cores"] = Digits(status.usage().cores());
  (*entry)["cpu_seconds"] = RoundTo(status.usage().user_seconds() + status.usage().system_seconds(), 0.01);
  if (status.steps_finished() > 0) (*entry)["steps_finished"] = status.steps_finished();
  if (status.parts_finished() > 0) (*entry)["parts_finished"] = status.parts_finished();
  if (!launched && status.steps_finished() > 0) (*entry)["step"] = status.steps_finished();
  int64_t sent = 0, received = 0;
  for (const TaskStatus::Peer& peer : status.peers()) {
    sent += peer.bytes_sent();
    received += peer.bytes_received();
  }
  if (sent > 0) (*entry)["bytes_sent"] = sent;
  if (received > 0) (*entry)["bytes_received"] = received;
  if (rate == nullptr || !rate->unknown.empty()) return;
  (*entry)["busy_cores"] = RoundTo(rate->busy_cores, 0.01);
  if (rate->drives && !launched) (*entry)["steps_per_second"] = Digits(rate->steps_per_second);
  if (!rate->drives && rate->runs) (*entry)["parts_per_second"] = Digits(rate->parts_per_second);
  if (rate->drives) (*entry)["in_steps"] = RoundTo(rate->in_steps, 0.01);
  if (rate->link_share > 0) (*entry)["share_of_ceiling"] = RoundTo(rate->link_share, 0.001);
}

const TaskRate* RateOf(const Observation& look, const TaskView& view) {
  if (!look.bottleneck.has_value()) return nullptr;
  for (const TaskRate& rate : look.bottleneck->tasks) {
    if (rate.task == view.task && rate.address == view.address) return &rate;
  }
  return nullptr;
}

struct ShownWait {
  std::string from, to, what;
  double age;
};

void AddWaits(const Observation& look, json* document) {
  std::vector<ShownWait> waits;
  for (const TaskView& view : look.tasks) {
    if (!view.answer.ok()) continue;
    const std::string from = ShortTaskName(view.task);
    const auto age = [&](int64_t micros) { return static_cast<double>(view.status.now_micros() - micros) / 1e6; };
    for (const TaskStatus::Wait& wait : view.status.waits()) {
      const std::string to = !wait.peer().empty() ? ShortTaskName(wait.peer()) : wait.resource();
      if (age(wait.since_micros()) >= kShownWait && !to.empty())
        waits.push_back({from, to, absl::StrCat(wait.node(), ": ", wait.what()), age(wait.since_micros())});
    }
    for (const TaskStatus::Step& step : view.status.steps()) {
      if (age(step.since_micros()) < kShownWait) continue;
      for (const std::string& task : step.waits_for()) {
        if (ShortTaskName(task) == from) continue;
        waits.push_back(
            {from, ShortTaskName(task), absl::StrCat("its part of step ", step.id()), age(step.since_micros())});
      }
    }
  }
  std::stable_sort(waits.begin(), waits.end(), [](const ShownWait& a, const ShownWait& b) { return a.age > b.age; });
  json& shown = (*document)["waits"] = json::array();
  for (size_t i = 0; i < std::min(waits.size(), kMaxWaits); ++i) {
    shown.push_back({{"from", waits[i].from},
                     {"to", waits[i].to},
                     {"what", waits[i].what},
                     {"since", RoundTo(look.seconds - waits[i].age, 0.1)}});
  }
  (*document)["more_waits"] = waits.size() - shown.size();
}

void AddLinks(const Observation& look, json* document) {
  struct Link {
    std::string from;
    const PeerRate* rate;
  };
  std::vector<Link> links;
  if (look.bottleneck.has_value()) {
    for (const TaskRate& task : look.bottleneck->tasks) {
      // A connection is listed once, by the task that called.
      for (const PeerRate& peer : task.peers) {
        if (task.unknown.empty() && peer.outgoing) links.push_back({ShortTaskName(task.task), &peer});
      }
    }
  }
  const size_t shown = std::min(links.size(), kMaxLinks);
  std::partial_sort(
      links.begin(), links.begin() + static_cast<ptrdiff_t>(shown), links.end(),
      [](const Link& a, const Link& b) { return a.rate->gigabytes_per_second > b.rate->gigabytes_per_second; });
  json& all = (*document)["links"] = json::object();
  for (size_t i = 0; i < shown; ++i) {
    const PeerRate& rate = *links[i].rate;
    const std::string to = ShortTaskName(rate.peer);
    json link = {{"from", links[i].from},
                 {"to", to},
                 {"lane", rate.lane},
                 {"gigabytes_per_second", Digits(rate.gigabytes_per_second, 3)},
                 {"calls_per_second", Digits(rate.calls_per_second, 3)},
                 {"bytes_sent", rate.bytes_sent},
                 {"bytes_received", rate.bytes_received}};
    if (rate.share > 0) link["share_of_ceiling"] = RoundTo(rate.share, 0.001);
    Set(&link, "why_not_better", rate.why_not_better);
    all[absl::StrCat(links[i].from, ">", to, " ", rate.lane)] = std::move(link);
  }
  (*document)["more_links"] = links.size() - shown;
}

void AddVariables(const Observation& look, json* document) {
  json& all = (*document)["variables"] = json::object();
  for (const TaskView& view : look.tasks) {
    const TaskStatus& status = view.status;
    if (status.variable_count() == 0) continue;
    json& task = all[ShortTaskName(view.task)] = {
        {"count", status.variable_count()}, {"bytes", status.variable_bytes()}, {"largest", json::array()}};
    for (const TaskStatus::Variable& variable : status.variables()) {
      task["largest"].push_back({{"name", variable.name()},
                                 {"dtype", variable.dtype()},
                                 {"shape", std::vector<int64_t>(variable.shape().begin(), variable.shape().end())},
                                 {"bytes", variable.bytes()}});
    }
  }
}

void AddJob(const Observation& look, json* document) {
  const launch::JobReport& job = *look.job;
  (*document)["state"] = launch::StateName(job.state);
  Set(document, "command", job.command);
  Set(document, "directory", job.directory);
  Set(document, "cause", job.verdict.empty() ? job.cause : job.verdict);
  if (job.exit_code) (*document)["exit_code"] = *job.exit_code;
  if (job.checkpoint.has_value()) {
    (*document)["checkpoint"] = {{"task", job.checkpoint->task},
                                 {"step", job.checkpoint->step},
                                 {"at", RoundTo(job.seconds - job.checkpoint->age_seconds, 0.1)}};
  }
}

void AddHang(const Observation& look, json* document) {
  json hang = json::object();
  if (look.job.has_value() && !look.job->hang.empty()) {
    hang = {{"cause", look.job->hang}, {"waits", look.job->waits}};
  } else if (look.hang.somebody_waits && !look.hang.cause.empty()) {
    hang = {{"cause", look.hang.cause}, {"waits", look.hang.waits}};
  }
  if (!look.hang.busy.empty()) hang["busy"] = look.hang.busy;
  // A task that is suspended does not say so itself, and others may not wait for it yet.
  for (size_t i = 0; look.job.has_value() && !hang.contains("cause") && i < look.job->tasks.size(); ++i) {
    const launch::JobReport::Task& task = look.job->tasks[i];
    if (task.state == "running" && absl::StartsWith(task.phase, "suspended by "))
      hang = {{"cause", absl::StrCat(task.task, " is ", task.phase)}, {"only_suspended", true}};
  }
  if (!hang.empty() && !look.ended) (*document)["hang"] = std::move(hang);
}

void AddTasks(const Observation& look, json* document) {
  json tasks = json::object(), order = json::array();
  const auto entry_of = [&](const std::string& name) -> json& {
    if (!tasks.contains(name)) {
      tasks[name] = json::object();
      order.push_back(name);
    }
    return tasks[name];
  };
  if (look.job.has_value()) {
    for (const launch::JobReport::Task& task : look.job->tasks) entry_of(task.task) = LaunchedJson(*look.job, task);
  }
  for (const TaskView& view : look.tasks) {
    const std::string name = view.task.empty() ? view.address : ShortTaskName(view.task);
    AddAnswer(view, RateOf(look, view), look.job.has_value(), &entry_of(name));
  }
  (*document)["tasks"] = std::move(tasks);
  (*document)["order"] = std::move(order);
}

json SpreadJson(const std::optional<Spread>& spread) {
  if (!spread) return nullptr;
  return {Digits(spread->low), Digits(spread->middle), Digits(spread->high)};
}

}  // namespace

json DescribeLook(const Observation& look) {
  json document = {{"version", Version()},
                   {"title", look.title},
                   {"now", RoundTo(look.seconds, 0.1)},
                   {"began", RoundTo(look.began, 1)},
                   {"state", "running"},
                   {"ended", look.ended}};
  Set(&document, "lost", look.lost);
  if (look.job.has_value()) AddJob(look, &document);
  AddTasks(look, &document);
  AddHang(look, &document);
  if (look.bottleneck.has_value()) {
    document["bottleneck"] = {{"kind", BottleneckName(look.bottleneck->kind)}, {"line", look.bottleneck->line}};
    if (look.bottleneck->ps > 0)
      document["bottleneck"]["suggests"] = {{"ps", look.bottleneck->ps}, {"workers", look.bottleneck->workers}};
  }
  AddWaits(look, &document);
  AddLinks(look, &document);
  AddVariables(look, &document);
  return document;
}

void PageState::Add(const Observation& look) {
  json previous = std::move(document_);
  document_ = DescribeLook(look);
  // The last that was known stays on the page of a job that has ended.
  if (look.tasks.empty() && previous.is_object()) {
    for (const char* key : {"variables", "links", "more_links", "bottleneck"}) {
      if (previous.contains(key)) document_[key] = previous[key];
    }
  }
  AddHistory(look);
  AddEvents(look);
  AddStragglers();
  if (look.bottleneck.has_value()) {
    if (json plan = PlanJson(look.bottleneck->tasks); !plan.is_null()) document_["plan"] = std::move(plan);
  } else if (previous.contains("plan")) {
    document_["plan"] = previous["plan"];
  }
}

void PageState::AddHistory(const Observation& look) {
  Sample sample = {.seconds = RoundTo(look.seconds, 0.1)};
  std::vector<double> speeds, losses;
  for (const auto& [name, task] : document_["tasks"].items()) {
    if (task.contains("step")) sample.step = std::max(sample.step.value_or(0), task["step"].get<int64_t>());
    if (task.contains("steps_per_second") && task["steps_per_second"].is_number())
      speeds.push_back(task["steps_per_second"].get<double>());
    if (!task.contains("loss")) continue;
    if (task["loss"].is_number()) {
      losses.push_back(task["loss"].get<double>());
    } else {
      ++sample.bad_losses;
    }
  }
  sample.steps_per_second = Spread::Of(std::move(speeds));
  sample.loss = Spread::Of(std::move(losses));
  if (!look.ended && look.lost.empty() && (sample.step || sample.steps_per_second || sample.loss))
    history_.Add(std::move(sample));
  json& shown = document_["history"] = json::object();
  for (const auto& [number, entry] : history_.samples()) {
    shown[std::to_string(number)] = {entry.seconds, entry.step ? json(*entry.step) : json(nullptr),
                                     SpreadJson(entry.steps_per_second), SpreadJson(entry.loss), entry.bad_losses};
  }
}

void PageState::AddEvents(const Observation& look) {
  if (look.job.has_value()) {
    for (const launch::JobEvent& event : look.job->events) {
      if (event.number <= last_event_) continue;
      last_event_ = event.number;
      json& entry = events_[std::to_string(event.number)] = {{"at", RoundTo(event.seconds, 0.1)}, {"kind", event.kind}};
      Set(&entry, "task", event.task);
      Set(&entry, "text", event.text);
      event_numbers_.insert(event.number);
      if (event_numbers_.size() <= launch::JobEvents::kMost) continue;
      events_.erase(std::to_string(*event_numbers_.begin()));
      event_numbers_.erase(event_numbers_.begin());
    }
  }
  document_["events"] = events_;
}

void PageState::AddStragglers() {
  std::vector<TaskSpeed> speeds;
  for (const auto& [name, task] : document_["tasks"].items()) {
    if (task["state"] == "running" && task.contains("steps_per_second") && task["steps_per_second"].is_number())
      speeds.push_back({JobOfTask(name), name, task["steps_per_second"].get<double>()});
  }
  std::set<std::string> waited_for;
  for (const json& wait : document_["waits"]) {
    const std::string to = wait["to"].get<std::string>();
    // Workers always wait for their ps; a peer that the others wait for is slower than they are.
    if (JobOfTask(to) == JobOfTask(wait["from"].get<std::string>())) waited_for.insert(to);
  }
  waited_for_.Add(waited_for);
  std::map<std::string, std::string> found = SlowTasks(speeds);
  found.merge(waited_for_.Often());
  json& shown = document_["stragglers"] = json::object();
  for (const auto& [task, why] : found) shown[task] = why;
}

}  // namespace millrace::dashboard
