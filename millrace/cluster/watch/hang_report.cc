#include "millrace/cluster/watch/hang_report.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "millrace/cluster/cluster_spec.h"

namespace millrace {
namespace {

using StatusWait = TaskStatus::Wait;

// How much a wait explains, if several waits are sinks (depend on no other wait); a lower rank explains more.
enum Rank {
  kSilentTask,
  kUndoneByPeer,  // variables that a task does not initialise, a tensor of a step that a task does not run
  kShortOfWorkers,
  kBarrier,
  kNoElements,
  kShort,   // an accumulator that every worker waits behind
  kTokens,  // handed out after gradients were taken
  kNoRoom,
  kUnknown,
};

// "12 s", "340 ms", "3 min".
std::string AgeText(absl::Duration age) {
  if (age < absl::Seconds(1)) return absl::StrCat(absl::ToInt64Milliseconds(age), " ms");
  if (age < absl::Minutes(3)) return absl::StrCat(absl::ToInt64Seconds(age), " s");
  if (age < absl::Hours(3)) return absl::StrCat(absl::ToInt64Minutes(age), " min");
  return absl::StrCat(absl::ToInt64Hours(age), " h");
}

// "a", "a and b", "a, b and c".
std::string Listed(const std::vector<std::string>& names) {
  if (names.size() < 2) return absl::StrJoin(names, "");
  return absl::StrCat(absl::StrJoin(names.begin(), names.end() - 1, ", "), " and ", names.back());
}

class Explanation {
 public:
  Explanation(absl::Span<const TaskView> tasks, absl::Duration limit) : tasks_(tasks), limit_(limit) {
    for (const TaskView& view : tasks_) {
      by_name_[view.task] = &view;
      for (const TaskStatus::Step& step : view.status.steps()) {
        if (step.driven_here()) drivers_[step.id()] = {&view, &step};
      }
    }
  }

  HangReport Report() {
    FindWaits();
    FindBusy();
    AddSilent();
    for (const Hung& hung : hung_) Judge(hung);
    HangReport report;
    report.somebody_waits = !hung_.empty() || !step_lines_.empty();
    for (const Hung& hung : hung_) report.waits.push_back(Line(hung));
    for (const std::string& line : step_lines_) report.waits.push_back(line);
    report.busy = busy_;
    for (const std::string& line : silent_lines_) report.waits.push_back(line);
    if (!causes_.empty()) {
      std::stable_sort(causes_.begin(), causes_.end(), [](const Cause& a, const Cause& b) {
        return std::pair(a.rank, b.age) < std::pair(b.rank, a.age);
      });
      report.cause = causes_.front().text;
    } else if (!hung_.empty() && busy_.empty()) {
      report.cause = Line(hung_.front());
    }
    return report;
  }

 private:
  struct Hung {
    const TaskView* view;
    const StatusWait* wait;
    absl::Duration age;
  };
  struct Driver {
    const TaskView* view = nullptr;
    const TaskStatus::Step* step = nullptr;
  };
  struct Cause {
    Rank rank;
    absl::Duration age;
    std::string text;
  };

  static absl::Duration Age(const TaskView& view, int64_t micros) {
    return absl::FromUnixMicros(view.status.now_micros()) - absl::FromUnixMicros(micros);
  }

  const TaskView* Find(absl::string_view task) const {
    const auto it = by_name_.find(std::string(task));
    return it == by_name_.end() ? nullptr : it->second;
  }
  Driver DriverOf(int64_t step) const {
    const auto it = drivers_.find(step);
    return it == drivers_.end() ? Driver() : it->second;
  }
  static bool Runs(const TaskView& view, int64_t step) {
    return std::any_of(view.status.steps().begin(), view.status.steps().end(),
                       [&](const TaskStatus::Step& s) { return s.id() == step; });
  }
  static bool WaitsIn(const TaskView& view, int64_t step) {
    return std::any_of(view.status.waits().begin(), view.status.waits().end(),
                       [&](const StatusWait& w) { return w.step_id() == step; });
  }

  // True if other steps of the same session ended recently, so that its waits are not a hang.
  bool GoesOn(const Driver& driver) const {
    if (driver.view == nullptr) return false;
    int64_t last = driver.view->status.last_step_finished_micros();
    for (const TaskStatus::Session& session : driver.view->status.sessions()) {
      if (session.handle() == driver.step->session()) last = session.last_step_finished_micros();
    }
    return last > 0 && Age(*driver.view, last) < limit_;
  }

  void FindWaits() {
    for (const TaskView& view : tasks_) {
      if (!view.answer.ok()) continue;
      for (const StatusWait& wait : view.status.waits()) {
        const absl::Duration age = Age(view, wait.since_micros());
        // A checkpoint that is late (CheckpointSaverHook) keeps no step waiting.
        if (wait.step_id() == 0 && wait.resource() == "checkpoints") continue;
        if (age < limit_ || (wait.step_id() != 0 && GoesOn(DriverOf(wait.step_id())))) continue;
        hung_.push_back({&view, &wait, age});
      }
    }
    std::stable_sort(hung_.begin(), hung_.end(), [](const Hung& a, const Hung& b) { return a.age > b.age; });
  }

  // Finds old steps in which no participating task waits.
  void FindBusy() {
    std::set<std::pair<std::string, int64_t>> seen;
    for (const TaskView& view : tasks_) {
      for (const TaskStatus::Step& step : view.status.steps()) {
        const Driver driver{&view, &step};
        const absl::Duration age = Age(view, step.since_micros());
        if (!step.driven_here() || age < limit_ || GoesOn(driver)) continue;
        for (const std::string& task : step.waits_for()) {
          const TaskView* part = Find(task);
          if (part == nullptr || part->is_tensorflow) continue;
          if (!part->answer.ok()) {
            waiters_[task].insert(ShortTaskName(view.task));
            step_lines_.push_back(absl::StrCat(ShortTaskName(view.task), " waits ", AgeText(age), " for the part of ",
                                               ShortTaskName(task), " in step ", step.id()));
          } else if (Runs(*part, step.id()) && !WaitsIn(*part, step.id()) && seen.insert({task, step.id()}).second) {
            busy_tasks_.insert(task);
            busy_.push_back(absl::StrCat(ShortTaskName(task), " has been at work on step ", step.id(),
                                         task == view.task ? "" : absl::StrCat(" of ", ShortTaskName(view.task)),
                                         " for ", AgeText(age), " and waits for nothing"));
          }
        }
      }
    }
  }

  static std::string Silence(const TaskView& view) {
    const std::string who =
        absl::StrCat(view.task.empty() ? "the task" : ShortTaskName(view.task), " at ", view.address);
    if (absl::IsDeadlineExceeded(view.answer))
      return absl::StrCat(who, " does not answer: it is stopped, swamped or cut off");
    return absl::StrCat(who, " cannot be reached: it has ended or was never started (", view.answer.message(), ")");
  }

  void AddSilent() {
    for (const TaskView& view : tasks_) {
      if (view.answer.ok()) continue;
      std::set<std::string> waiters = waiters_[view.task];
      std::set<std::string> others;
      for (const Hung& hung : hung_) {
        const std::string peer = PeerOf(hung);
        (peer == view.task ? waiters : others).insert(ShortTaskName(hung.view->task));
      }
      // Nobody waits for it directly; as far as is known, the other waits are its consequences.
      if (waiters.empty()) waiters = others;
      const std::vector<std::string> names(waiters.begin(), waiters.end());
      const std::string tail =
          names.empty() ? "" : absl::StrCat("; ", Listed(names), names.size() == 1 ? " waits for it" : " wait for it");
      // If there are several, the one that somebody waits for comes first.
      causes_.push_back({kSilentTask, names.empty() ? absl::ZeroDuration() : absl::InfiniteDuration(),
                         absl::StrCat(Silence(view), tail)});
      silent_lines_.push_back(Silence(view));
    }
  }

  // The task that a wait is for; "" when it is for data of whoever has it, or for a task that was not asked.
  std::string PeerOf(const Hung& hung) const { return Find(hung.wait->peer()) != nullptr ? hung.wait->peer() : ""; }

  static std::string StepText(const Hung& hung, const Driver& driver) {
    if (hung.wait->step_id() == 0) return "";
    const std::string step = absl::StrCat("step ", hung.wait->step_id());
    if (driver.view == nullptr || driver.view == hung.view) return absl::StrCat(" (", step, ")");
    return absl::StrCat(" (", step, " of ", ShortTaskName(driver.view->task), ")");
  }

  std::string Line(const Hung& hung) const {
    const StatusWait& wait = *hung.wait;
    const std::string who = absl::StrCat(ShortTaskName(hung.view->task), " waits ", AgeText(hung.age));
    const std::string step = StepText(hung, DriverOf(wait.step_id()));
    if (wait.kind() == StatusWait::TENSOR)
      return absl::StrCat(who, " for tensor ", wait.tensor(), " from ", ShortTaskName(wait.peer()), step);
    if (wait.step_id() == 0) return absl::StrCat(who, " for ", wait.what());
    return absl::StrCat(who, " at node ", wait.node(), " for ", wait.what(), step);
  }

  // The same without the resource, if that was already named.
  std::string Brief(const Hung& hung) const {
    const StatusWait& wait = *hung.wait;
    const bool counts = wait.kind() == StatusWait::ELEMENTS && wait.needs() > 0;
    return absl::StrCat(ShortTaskName(hung.view->task), " waits ", AgeText(hung.age), " at node ", wait.node(),
                        counts ? absl::StrCat(" for ", wait.needs(), wait.needs() == 1 ? " element" : " elements") : "",
                        StepText(hung, DriverOf(wait.step_id())));
  }

  // Why a task does not do what others wait for; "" if it is working.
  std::string Idleness(const TaskView& view) const {
    if (!view.answer.ok()) return "does not answer";
    if (view.is_tensorflow) return "";
    for (const Hung& hung : hung_) {
      if (hung.view == &view && hung.wait->step_id() == 0)
        return absl::StrCat("waits ", AgeText(hung.age), " for ", hung.wait->what());
    }
    bool drives = false, has_session = false;
    for (const TaskStatus::Step& step : view.status.steps()) drives |= step.driven_here();
    if (drives) return "";
    for (const TaskStatus::Session& session : view.status.sessions()) has_session |= session.master() == view.task;
    const int64_t last = view.status.last_step_finished_micros();
    if (last > 0 && Age(view, last) < limit_) return "";
    const std::string ago =
        last > 0 ? absl::StrCat("; its last one ended ", AgeText(Age(view, last)), " ago") : "; it has run none yet";
    return absl::StrCat(has_session ? "runs no step" : "has no session and runs no step", ago);
  }

  // The tasks that could provide what is missing but do not, with reasons: those of the jobs that run steps.
  std::vector<std::string> Missing() const {
    std::set<std::string> jobs;
    for (const auto& [step, driver] : drivers_) {
      if (const StatusOr<TaskId> id = TaskId::Of(driver.view->task); id.ok()) jobs.insert(id->job);
    }
    std::vector<std::string> missing;
    for (const TaskView& view : tasks_) {
      const StatusOr<TaskId> id = TaskId::Of(view.task);
      if (!id.ok() || !jobs.contains(id->job)) continue;
      if (const std::string why = Idleness(view); !why.empty())
        missing.push_back(absl::StrCat(ShortTaskName(view.task), ", which ", why));
    }
    return missing;
  }

  void Judge(const Hung& hung) {
    const StatusWait& wait = *hung.wait;
    const std::string peer = PeerOf(hung);
    const auto add = [&](Rank rank, std::string text) { causes_.push_back({rank, hung.age, std::move(text)}); };
    if (!peer.empty() || wait.kind() == StatusWait::TENSOR || wait.step_id() == 0) return JudgePeer(hung, peer, add);
    switch (wait.kind()) {
      case StatusWait::ELEMENTS:
        return JudgeElements(hung, add);
      case StatusWait::ROOM:
        return add(kNoRoom,
                   absl::StrCat(wait.resource(), " on ", ShortTaskName(hung.view->task), " stays full (", wait.has(),
                                " of ", wait.needs(), " elements) and nobody takes from it: ", Brief(hung)));
      default:
        return add(kUnknown, Line(hung));
    }
  }

  template <typename Add>
  void JudgePeer(const Hung& hung, const std::string& peer, const Add& add) {
    const TaskView* view = Find(peer);
    if (view == nullptr) return add(kUnknown, Line(hung));
    if (!view->answer.ok()) return;  // reported by AddSilent
    if (hung.wait->step_id() == 0) {
      // If the other task itself waits for something, that wait is the cause.
      for (const Hung& other : hung_) {
        if (other.view == view && other.wait != hung.wait) return;
        const Driver driver = DriverOf(other.wait->step_id());
        if (driver.view == view && other.wait != hung.wait) return;
      }
      if (busy_tasks_.contains(peer)) return;
      const std::string why = Idleness(*view);
      return add(kUndoneByPeer,
                 absl::StrCat(Line(hung), why.empty() ? "" : absl::StrCat("; ", ShortTaskName(peer), " ", why)));
    }
    if (view->is_tensorflow || WaitsIn(*view, hung.wait->step_id()) || Runs(*view, hung.wait->step_id())) return;
    add(kUndoneByPeer, absl::StrCat(Line(hung), "; ", ShortTaskName(peer),
                                    " does not run that step: it was restarted or never asked to"));
  }

  template <typename Add>
  void JudgeElements(const Hung& hung, const Add& add) {
    const StatusWait& wait = *hung.wait;
    const std::string what = absl::StrCat(wait.resource(), " on ", ShortTaskName(hung.view->task));
    const std::vector<std::string> missing = Missing();
    if (wait.resource_kind() == StatusWait::ACCUMULATOR) {
      const std::string fill = absl::StrCat(what, " has ", wait.has(), " of ", wait.needs(), " gradients: ");
      if (!missing.empty()) return add(kShortOfWorkers, absl::StrCat(fill, "none comes from ", Listed(missing)));
      if (!busy_tasks_.empty()) return;
      return add(
          kShort,
          absl::StrCat(fill, "every worker waits, so more are required than come, or they were dropped as stale; ",
                       ShortTaskName(hung.view->task), " waits ", AgeText(hung.age), " at node ", wait.node()));
    }
    if (wait.resource_kind() == StatusWait::STEP_GATE) {
      if (!missing.empty())
        return add(kShortOfWorkers,
                   absl::StrCat(what, " waits for ", wait.what(), ": no step comes from ", Listed(missing)));
      if (busy_tasks_.empty()) add(kShort, Line(hung));
      return;
    }
    if (!busy_tasks_.empty()) return;  // a busy task may fill it
    const std::string by = missing.empty() ? "" : absl::StrCat("; not running: ", Listed(missing));
    if (wait.resource_kind() == StatusWait::BARRIER) {
      return add(kBarrier, absl::StrCat(what, " is short of ", wait.needs() - wait.has(), " (", wait.has(), " of ",
                                        wait.needs(), " elements): ", Brief(hung), by));
    }
    const std::string fill = wait.needs() == 0 ? "gives nothing"
                             : wait.has() == 0
                                 ? "stays empty"
                                 : absl::StrCat("has ", wait.has(), " of the ", wait.needs(), " that are wanted");
    add(wait.resource_kind() == StatusWait::TOKEN_QUEUE ? kTokens : kNoElements,
        absl::StrCat(what, " ", fill, " and nobody fills it: ", Brief(hung), by));
  }

  const absl::Span<const TaskView> tasks_;
  const absl::Duration limit_;
  std::map<std::string, const TaskView*> by_name_;
  std::map<int64_t, Driver> drivers_;
  std::map<std::string, std::set<std::string>> waiters_;  // of tasks that do not answer
  std::set<std::string> busy_tasks_;
  std::vector<Hung> hung_;
  std::vector<std::string> busy_, step_lines_, silent_lines_;
  std::vector<Cause> causes_;
};

}  // namespace

std::string ShortTaskName(absl::string_view task) {
  const StatusOr<TaskId> id = TaskId::Of(task);
  return id.ok() ? absl::StrCat(id->job, "/", id->index) : std::string(task);
}

HangReport ExplainHang(absl::Span<const TaskView> tasks, absl::Duration limit) {
  return Explanation(tasks, limit).Report();
}

}  // namespace millrace
