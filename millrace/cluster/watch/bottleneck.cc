#include "millrace/cluster/watch/bottleneck.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "millrace/cluster/cluster_spec.h"
#include "millrace/cluster/watch/hang_report.h"

namespace millrace {
namespace {

using Kind = Bottleneck::Kind;

// The shares of a task's cores, and of a link's bandwidth, from which on they count as saturated. A ceiling that was
// measured in isolation is never fully reached.
constexpr double kFullCores = 0.85, kFullLink = 0.7, kFullHost = 0.9;
// Below this a ps has room for twice the work.
constexpr double kIdle = 0.5;
// The utilisation of a ps that the suggested numbers aim at; it leaves room for peaks.
constexpr double kTarget = 0.75;
// Two snapshots do not justify a suggestion of more than this many times the observed workers.
constexpr int kMostGrowth = 4;
// The share of a core that answering status requests and liveness pings may take.
constexpr double kAsleep = 0.05;
// The share of a core that every machine uses for other things.
constexpr double kForeign = 0.3;

std::string Percent(double share) { return absl::StrFormat("%.0f %%", 100 * share); }
std::string Count(int count, absl::string_view what) {
  return absl::StrCat(count, " ", what, count == 1 || what == "ps" ? "" : "s");
}
std::string CoresText(double cores) { return absl::StrFormat("%.*f", cores == std::floor(cores) ? 0 : 1, cores); }

std::string Names(const std::vector<const TaskRate*>& tasks) {
  std::vector<std::string> names;
  for (const TaskRate* task : tasks) names.push_back(ShortTaskName(task->task));
  if (names.size() > 4) return absl::StrCat(names[0], ", ", names[1], " and ", names.size() - 2, " more");
  const std::string last = names.back();
  names.pop_back();
  return names.empty() ? last : absl::StrCat(absl::StrJoin(names, ", "), " and ", last);
}

std::string JobOf(const TaskRate& task) {
  const StatusOr<TaskId> id = TaskId::Of(task.task);
  return id.ok() ? id->job : "";
}

double MeanOf(const std::vector<const TaskRate*>& tasks, double (*value)(const TaskRate&)) {
  double sum = 0;
  for (const TaskRate* task : tasks) sum += value(*task);
  return tasks.empty() ? 0 : sum / static_cast<double>(tasks.size());
}

double BusyOf(const TaskRate& task) { return task.busy(); }
double LinkOf(const TaskRate& task) { return task.link_share; }

class Judge {
 public:
  explicit Judge(std::vector<TaskRate> tasks) { result_.tasks = std::move(tasks); }

  Bottleneck Decide() && {
    SortRoles();
    Choose();
    return std::move(result_);
  }

 private:
  void SortRoles() {
    const bool has_ps_job = std::any_of(result_.tasks.begin(), result_.tasks.end(),
                                        [](const TaskRate& task) { return JobOf(task) == "ps"; });
    for (const TaskRate& task : result_.tasks) {
      const bool is_ps = has_ps_job ? JobOf(task) == "ps" : task.runs && !task.drives;
      if (is_ps) {
        (task.unknown.empty() ? ps_ : unknown_ps_).push_back(&task);
      } else if (JobOf(task) != "evaluator") {
        if (!task.unknown.empty()) unknown_others_.push_back(&task);
        if (task.drives || task.runs) workers_.push_back(&task);
      }
      if (task.unknown.empty()) {
        known_.push_back(&task);
        longest_ = std::max(longest_, task.seconds);
      }
    }
  }

  void Set(Kind kind, std::string line) {
    result_.kind = kind;
    result_.line = std::move(line);
  }

  void Suggest(int ps, int workers) {
    result_.ps = ps;
    result_.workers = workers;
  }

  std::string Ratio() const { return absl::StrCat(Count(result_.ps, "ps"), " for ", Count(result_.workers, "worker")); }

  void Choose() {
    if (known_.empty()) return Set(Kind::kUnknown, absl::StrCat("not known: ", Reasons(All())));
    if (NothingRuns()) return;
    if (result_.tasks.size() == 1) {
      const TaskRate& task = *known_[0];
      return Set(Kind::kOneTask, absl::StrFormat("one task does everything: %s keeps %.1f of %s cores busy",
                                                 ShortTaskName(task.task), task.busy_cores, CoresText(task.cores)));
    }
    if (ps_.empty() && !unknown_ps_.empty())
      return Set(Kind::kUnknown, absl::StrCat("not known: ", Reasons(unknown_ps_)));
    if (ps_.empty()) {
      const TaskRate& busiest = Busiest(known_, BusyOf);
      return Set(Kind::kNoPs,
                 absl::StrFormat("no parameter server takes part; the busiest task, %s, keeps %.1f of %s cores busy",
                                 ShortTaskName(busiest.task), busiest.busy_cores, CoresText(busiest.cores)));
    }
    JudgePs();
    if (!unknown_ps_.empty()) absl::StrAppend(&result_.line, " (as far as is known: ", Reasons(unknown_ps_), ")");
  }

  bool NothingRuns() {
    const bool ended = std::any_of(known_.begin(), known_.end(), [](const TaskRate* task) {
      return task->steps_per_second > 0 || task->parts_per_second > 0;
    });
    if (ended) return false;
    const bool under_way =
        std::any_of(known_.begin(), known_.end(), [](const TaskRate* task) { return task->drives || task->runs; });
    const bool awake =
        std::any_of(known_.begin(), known_.end(), [](const TaskRate* task) { return task->busy_cores > kAsleep; });
    if (under_way && awake) return false;
    Set(Kind::kNothingRuns, absl::StrFormat("nothing runs: no step ended within %.1f s%s", longest_,
                                            under_way ? ", and those that are under way wait" : ""));
    return true;
  }

  // Clients may also drive steps through TensorFlow's workers, which do not report them.
  int NumWorkers() const { return static_cast<int>(workers_.size() + unknown_others_.size()); }

  void JudgePs() {
    const TaskRate& hot = Busiest(ps_, BusyOf);
    const TaskRate& loud = Busiest(ps_, LinkOf);
    const int ps = static_cast<int>(ps_.size() + unknown_ps_.size());
    if (loud.link_share >= kFullLink) return BlameLink(loud, ps);
    if (hot.busy() >= kFullCores) {
      if (!workers_.empty() && MeanOf(workers_, BusyOf) >= kFullCores) return BlameNobody(hot, ps);
      return BlameCores(hot, ps);
    }
    if (BlamesHost()) return;
    if (std::max(hot.busy(), loud.link_share) < kIdle) return BlameWorkers(hot, loud, ps);
    BlameNobody(hot, ps);
  }

  void BlameCores(const TaskRate& hot, int ps) {
    std::vector<const TaskRate*> full;
    for (const TaskRate* task : ps_) {
      if (task->busy() >= kFullCores) full.push_back(task);
    }
    const double mean = MeanOf(ps_, BusyOf);
    const std::string who = absl::StrFormat("the cores of %s, %s busy (%.1f of %s)%s", Names(full), Percent(hot.busy()),
                                            hot.busy_cores, CoresText(hot.cores), WaitText());
    // The other ps tasks already have room, so another ps would not help.
    if (ps_.size() > 1 && mean < 0.6 * hot.busy()) {
      return Set(Kind::kPsCores, absl::StrCat(who, "; the ps tasks are ", Percent(mean),
                                              " busy on average: spread the variables over them"));
    }
    Suggest(std::max(ps + 1, Needed(ps, mean)), NumWorkers());
    Set(Kind::kPsCores, absl::StrCat(who, "; add ps tasks: ", Ratio()));
  }

  void BlameLink(const TaskRate& loud, int ps) {
    Suggest(std::max(ps + 1, Needed(ps, MeanOf(ps_, LinkOf))), NumWorkers());
    const bool beside = std::any_of(workers_.begin(), workers_.end(), [&](const TaskRate* task) {
      return HostOf(task->address) == HostOf(loud.address);
    });
    Set(Kind::kPsLink,
        absl::StrFormat("the link of %s: %.2f GB/s, %s of what can be; add ps tasks%s: %s", ShortTaskName(loud.task),
                        loud.gigabytes_per_second, Percent(loud.link_share), beside ? " on other hosts" : "", Ratio()));
  }

  void BlameWorkers(const TaskRate& hot, const TaskRate& loud, int ps) {
    const int workers = std::max(1, NumWorkers());
    const double used = std::max({hot.busy(), loud.link_share, 1e-6});
    const int room = static_cast<int>(std::min<double>(kMostGrowth * workers, std::floor(workers * kTarget / used)));
    Suggest(ps, std::max(workers + 1, room));
    const int enough = Needed(ps, std::max(MeanOf(ps_, BusyOf), MeanOf(ps_, LinkOf)));
    std::string line = absl::StrFormat("the workers: the busiest ps, %s, keeps %s of its cores busy",
                                       ShortTaskName(hot.task), Percent(hot.busy()));
    if (loud.link_share > 0) absl::StrAppend(&line, " and uses ", Percent(loud.link_share), " of its link");
    absl::StrAppend(&line, "; add workers: ", Ratio(), room >= kMostGrowth * workers ? " or more" : "");
    if (enough < ps)
      absl::StrAppend(&line, ", or use ", Count(enough, "ps"), " for the ", Count(workers, "worker"),
                      workers == 1 ? " that there is" : " that there are");
    Set(Kind::kWorkers, std::move(line));
  }

  void BlameNobody(const TaskRate& hot, int ps) {
    Suggest(ps, NumWorkers());
    std::string line = absl::StrFormat("none stands out: the busiest ps, %s, keeps %s of its cores busy",
                                       ShortTaskName(hot.task), Percent(hot.busy()));
    if (!workers_.empty()) absl::StrAppend(&line, ", the workers ", Percent(MeanOf(workers_, BusyOf)), " of theirs");
    Set(Kind::kBalanced, absl::StrCat(line, "; ", Ratio(), " fit"));
  }

  // Tasks that compete for the same cores, with each other or with other programs, each look idle.
  bool BlamesHost() {
    std::map<std::string, std::vector<const TaskRate*>> hosts;
    for (const TaskRate* task : known_) hosts[HostOf(task->address)].push_back(task);
    std::set<std::string> of_ps;
    for (const TaskRate* task : ps_) of_ps.insert(HostOf(task->address));
    return std::any_of(of_ps.begin(), of_ps.end(),
                       [&](const std::string& host) { return BlamesHost(host, hosts[host]); });
  }

  bool BlamesHost(const std::string& host, const std::vector<const TaskRate*>& tasks) {
    double busy = 0, cores = 0;
    std::vector<const TaskRate*> at_work;
    const TaskRate* full = nullptr;
    for (const TaskRate* task : tasks) {
      busy += task->busy_cores;
      cores = std::max(cores, task->cores);
      if (task->busy_cores > kAsleep) at_work.push_back(task);
      if (task->host_cores > 0 && task->host_busy_cores >= kFullHost * task->host_cores) full = task;
    }
    if (at_work.empty()) return false;
    if (full != nullptr) {
      const double others = full->host_busy_cores - busy;
      const std::string shared =
          others > kForeign ? absl::StrFormat(" with other programs, which take %.1f", others) : "";
      if (at_work.size() < 2 && shared.empty()) return false;
      return BlameHost(host, absl::StrCat(Names(at_work), at_work.size() > 1 ? " share" : " shares", shared),
                       full->host_busy_cores, full->host_cores);
    }
    // Used if the host's cores are unknown. Tasks with a share of the cores each, as in containers, may together use
    // more cores than one of them has.
    if (at_work.size() < 2 || tasks[0]->host_cores > 0 || cores <= 0 || busy < kFullHost * cores || busy > 1.1 * cores)
      return false;
    return BlameHost(host, absl::StrCat(Names(at_work), " share"), busy, cores);
  }

  bool BlameHost(const std::string& host, const std::string& sharing, double busy, double cores) {
    Set(Kind::kHostCores,
        absl::StrFormat("the cores of host %s, which %s: %.1f of %s busy; give them more cores, or hosts of their own",
                        host, sharing, busy, CoresText(cores)));
    return true;
  }

  static int Needed(int ps, double used) {
    return std::max(1, static_cast<int>(std::ceil(ps * used / kTarget - 1e-9)));
  }

  static const TaskRate& Busiest(const std::vector<const TaskRate*>& tasks, double (*value)(const TaskRate&)) {
    return **std::max_element(tasks.begin(), tasks.end(),
                              [&](const TaskRate* a, const TaskRate* b) { return value(*a) < value(*b); });
  }

  std::string WaitText() const {
    if (workers_.empty()) return "";
    return absl::StrCat(", while ",
                        workers_.size() == 1 ? "the worker waits" : absl::StrCat(workers_.size(), " workers wait"),
                        " (", Percent(MeanOf(workers_, BusyOf)), " of their cores busy)");
  }

  std::vector<const TaskRate*> All() const {
    std::vector<const TaskRate*> all;
    for (const TaskRate& task : result_.tasks) all.push_back(&task);
    return all;
  }

  static std::string Reasons(const std::vector<const TaskRate*>& tasks) {
    std::vector<std::string> reasons;
    for (const TaskRate* task : tasks) {
      reasons.push_back(
          absl::StrCat(task->task.empty() ? task->address : ShortTaskName(task->task), " ", task->unknown));
      if (reasons.size() == 3 && tasks.size() > 4) {
        reasons.push_back(absl::StrCat(tasks.size() - 3, " more tell nothing"));
        break;
      }
    }
    return absl::StrJoin(reasons, "; ");
  }

  Bottleneck result_;
  std::vector<const TaskRate*> known_, ps_, workers_, unknown_ps_, unknown_others_;
  double longest_ = 0;
};

}  // namespace

Bottleneck FindBottleneck(absl::Span<const TaskView> before, absl::Span<const TaskView> after,
                          const Ceilings& ceilings) {
  return Judge(RatesOf(before, after, ceilings)).Decide();
}

const char* BottleneckName(Kind kind) {
  switch (kind) {
    case Kind::kNothingRuns:
      return "nothing_runs";
    case Kind::kOneTask:
      return "one_task";
    case Kind::kNoPs:
      return "no_ps";
    case Kind::kPsCores:
      return "ps_cores";
    case Kind::kPsLink:
      return "ps_link";
    case Kind::kHostCores:
      return "host_cores";
    case Kind::kWorkers:
      return "workers";
    case Kind::kBalanced:
      return "balanced";
    case Kind::kUnknown:
      break;
  }
  return "unknown";
}

}  // namespace millrace
