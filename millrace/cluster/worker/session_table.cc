#include "millrace/cluster/worker/session_table.h"

#include <algorithm>
#include <utility>

#include "absl/hash/hash.h"

namespace millrace {
namespace {

constexpr size_t kClosedSessions = 1024;

int64_t HashOf(absl::string_view handle) { return static_cast<int64_t>(absl::Hash<absl::string_view>()(handle)); }

}  // namespace

SessionTable::SessionTable(std::string task, std::shared_ptr<WorkerSession> legacy)
    : task_(std::move(task)), legacy_(std::move(legacy)), closed_(kClosedSessions) {}

StatusOr<std::shared_ptr<WorkerSession>> SessionTable::Find(const std::string& handle, bool created) const {
  MutexLock lock(&mu_);
  if (!going_down_.ok()) return going_down_;
  if (handle.empty() || !created) return legacy_;
  const auto it = sessions_.find(handle);
  if (it != sessions_.end()) return it->second;
  return Aborted("task ", task_, " does not know session '", handle,
                 "': it was restarted since, or the session is closed");
}

StatusOr<std::shared_ptr<WorkerSession>> SessionTable::FindOpen(const std::string& handle) const {
  if (!going_down_.ok()) return going_down_;
  if (const auto found = sessions_.find(handle); found != sessions_.end()) return found->second;
  if (closed_.Contains(HashOf(handle))) {
    return Aborted("session '", handle, "' was closed on ", task_, " before it was made there");
  }
  return nullptr;
}

StatusOr<std::shared_ptr<WorkerSession>> SessionTable::FindOrMake(
    const std::string& handle, absl::FunctionRef<StatusOr<std::shared_ptr<WorkerSession>>()> make) {
  std::shared_ptr<WorkerSession> found;
  {
    MutexLock lock(&mu_);
    MR_ASSIGN_OR_RETURN(found, FindOpen(handle));
  }
  if (found != nullptr) return found;
  MR_ASSIGN_OR_RETURN(std::shared_ptr<WorkerSession> made, make());
  MutexLock lock(&mu_);
  MR_ASSIGN_OR_RETURN(found, FindOpen(handle));
  if (found == nullptr) found = sessions_.emplace(handle, std::move(made)).first->second;
  return found;
}

std::shared_ptr<WorkerSession> SessionTable::Close(const std::string& handle) {
  MutexLock lock(&mu_);
  closed_.Insert(HashOf(handle));
  auto node = sessions_.extract(handle);
  return node.empty() ? nullptr : std::move(node.mapped());
}

std::vector<std::string> SessionTable::OrphansOf(const std::string& master_task, int64_t master_incarnation) const {
  std::vector<std::string> orphans;
  {
    MutexLock lock(&mu_);
    for (const auto& [handle, session] : sessions_) {
      if (session->IsOrphanedBy(master_task, master_incarnation)) orphans.push_back(handle);
    }
  }
  std::sort(orphans.begin(), orphans.end());
  return orphans;
}

void SessionTable::Shutdown(const Status& why) {
  MutexLock lock(&mu_);
  going_down_ = why;
}

void SessionTable::Clear() {
  absl::flat_hash_map<std::string, std::shared_ptr<WorkerSession>> sessions;
  {
    MutexLock lock(&mu_);
    sessions.swap(sessions_);
  }
  for (auto& [handle, session] : sessions) session->DeregisterAll();
  legacy_->DeregisterAll();
}

std::vector<std::shared_ptr<WorkerSession>> SessionTable::List() const {
  std::vector<std::shared_ptr<WorkerSession>> sessions;
  MutexLock lock(&mu_);
  for (const auto& [handle, session] : sessions_) sessions.push_back(session);
  return sessions;
}

}  // namespace millrace
