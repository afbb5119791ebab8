// The partial runs of one session, by the handles that its client holds.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "millrace/base/mutex.h"
#include "millrace/base/status.h"

namespace millrace {

// `Run` is what the session keeps of a partial run; the caller synchronises access to it. Thread-safe. No run is
// destroyed under the lock.
template <typename Run>
class PartialRunTable {
 public:
  // Stores the run under a new handle, which is unique within the session and never reused.
  std::string Add(std::shared_ptr<Run> run) {
    MutexLock lock(&mu_);
    std::string handle = absl::StrCat(next_++);
    runs_.emplace(handle, std::move(run));
    return handle;
  }

  // INVALID_ARGUMENT for an unknown handle.
  StatusOr<std::shared_ptr<Run>> Find(const std::string& handle) const {
    MutexLock lock(&mu_);
    if (const auto it = runs_.find(handle); it != runs_.end()) return it->second;
    return InvalidArgument("there is no partial run '", handle, "': it has ended or was never set up");
  }

  // A no-op if there is none.
  void Remove(const std::string& handle) {
    std::shared_ptr<Run> removed;
    MutexLock lock(&mu_);
    if (auto node = runs_.extract(handle); !node.empty()) removed = std::move(node.mapped());
  }

  // In no particular order.
  std::vector<std::shared_ptr<Run>> List() const {
    std::vector<std::shared_ptr<Run>> runs;
    MutexLock lock(&mu_);
    for (const auto& [handle, run] : runs_) runs.push_back(run);
    return runs;
  }

  // Removes all runs and returns them, in no particular order.
  std::vector<std::shared_ptr<Run>> TakeAll() {
    std::vector<std::shared_ptr<Run>> runs;
    MutexLock lock(&mu_);
    for (auto& [handle, run] : runs_) runs.push_back(std::move(run));
    runs_.clear();
    return runs;
  }

 private:
  mutable Mutex mu_;
  int64_t next_ ABSL_GUARDED_BY(mu_) = 0;
  absl::flat_hash_map<std::string, std::shared_ptr<Run>> runs_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace
