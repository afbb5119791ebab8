// Finds the tasks that hold the others up.
#pragma once

#include <map>
#include <set>
#include <string>

#include "absl/types/span.h"

namespace millrace::dashboard {

struct TaskSpeed {
  std::string job = {}, task = {};  // "worker", "worker/1"
  double steps_per_second = 0;
};

// Tasks of which each is much slower than its job's others, with the reason in words: "12.1 steps/s, the others 40.3".
// A pure function.
std::map<std::string, std::string> SlowTasks(absl::Span<const TaskSpeed> speeds);

// Counts, over the last looks at a cluster, which tasks others waited for. In synchronous training all workers make the
// same steps per second; the slow one is the one that is waited for. Not thread-safe.
class WaitedFor {
 public:
  // `tasks` are all, `waited_for` those that a task has waited for during this look.
  void Add(const std::set<std::string>& waited_for);
  // Tasks that others waited for in most looks, with the reason in words.
  std::map<std::string, std::string> Often() const;

 private:
  double looks_ = 0;  // recent ones weigh more
  std::map<std::string, double> counts_;
};

}  // namespace millrace::dashboard
