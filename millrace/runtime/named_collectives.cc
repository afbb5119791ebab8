#include "millrace/runtime/named_collectives.h"

#include <utility>

#include "absl/container/flat_hash_map.h"
#include "millrace/base/mutex.h"

namespace millrace {
namespace {

struct Installed {
  Mutex mu;
  absl::flat_hash_map<std::string, std::weak_ptr<NamedCollectives>> groups ABSL_GUARDED_BY(mu);
};

Installed& All() {
  static Installed* const all = new Installed;
  return *all;
}

}  // namespace

void NamedCollectives::Install(const std::string& group, std::weak_ptr<NamedCollectives> collectives) {
  Installed& all = All();
  MutexLock lock(&all.mu);
  absl::erase_if(all.groups, [](const auto& entry) { return entry.second.expired(); });
  all.groups[group] = std::move(collectives);
}

StatusOr<std::shared_ptr<NamedCollectives>> NamedCollectives::Find(const std::string& group) {
  Installed& all = All();
  MutexLock lock(&all.mu);
  const auto it = all.groups.find(group);
  if (it != all.groups.end()) {
    if (auto found = it->second.lock()) return found;
  }
  return FailedPrecondition("this process takes part in no collective operations",
                            group.empty() ? "" : absl::StrCat(" of group '", group, "'"), ": call hvd::Init first");
}

}  // namespace millrace
