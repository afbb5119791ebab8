// Resources that live for one step: TensorArrays and stacks, by name.
#pragma once

#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "millrace/base/mutex.h"
#include "millrace/base/status.h"
#include "millrace/tensor/resource_handle.h"

namespace millrace {

// Owned by the step. Thread-safe. Costs nothing while it is empty, as in most steps. A handle tensor that holds the
// resource itself needs no look-up.
class StepResources {
 public:
  // A name with this prefix that is unique within the step.
  std::string UniqueName(absl::string_view prefix) {
    MutexLock lock(&mu_);
    return absl::StrCat(prefix, "_", next_++);
  }
  // ALREADY_EXISTS, naming the resource, if the name is taken.
  Status Create(const std::string& name, RefPtr<Resource> resource) {
    MutexLock lock(&mu_);
    if (resources_.emplace(name, std::move(resource)).second) return absl::OkStatus();
    return AlreadyExists("this step has a resource '", name, "' already");
  }
  // Null if there is none of that name and type.
  template <typename R>
  RefPtr<R> Find(const std::string& name) const {
    MutexLock lock(&mu_);
    const auto at = resources_.find(name);
    R* found = at == resources_.end() ? nullptr : dynamic_cast<R*>(at->second.get());
    return found == nullptr ? RefPtr<R>() : ShareRef(found);
  }
  bool Delete(const std::string& name) {
    MutexLock lock(&mu_);
    return resources_.erase(name) > 0;
  }

 private:
  mutable Mutex mu_;
  int64_t next_ ABSL_GUARDED_BY(mu_) = 0;
  absl::flat_hash_map<std::string, RefPtr<Resource>> resources_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace
