// The sessions that masters have on a task.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "millrace/base/mutex.h"
#include "millrace/cluster/worker/recent_ids.h"
#include "millrace/cluster/worker/worker_session.h"

namespace millrace {

// Thread-safe.
class SessionTable {
 public:
  // `task` is used in messages; `legacy` is the session of callers that did not create one.
  SessionTable(std::string task, std::shared_ptr<WorkerSession> legacy);

  const std::shared_ptr<WorkerSession>& legacy() const { return legacy_; }
  // The legacy session if `handle` is empty or the caller did not create one. ABORTED for an unknown session.
  StatusOr<std::shared_ptr<WorkerSession>> Find(const std::string& handle, bool created) const;
  // The session of this handle, or else the one that `make` returns. `make` is called without the lock; if the same
  // session is made twice at once, the first one stored is everybody's. ABORTED if it was closed before: a request to
  // create a session may arrive after the one to close it.
  StatusOr<std::shared_ptr<WorkerSession>> FindOrMake(
      const std::string& handle, absl::FunctionRef<StatusOr<std::shared_ptr<WorkerSession>>()> make);
  // Removes the session permanently; null if it is not there.
  std::shared_ptr<WorkerSession> Close(const std::string& handle);
  // The sessions that an earlier process of `master_task` created, which nobody is left to close; sorted.
  std::vector<std::string> OrphansOf(const std::string& master_task, int64_t master_incarnation) const;
  // From now on no session is found or created.
  void Shutdown(const Status& why);
  // Releases all sessions and their graphs.
  void Clear();

  std::vector<std::shared_ptr<WorkerSession>> List() const;

 private:
  // The session of this handle, null if it has yet to be made, or the reason why it cannot be.
  StatusOr<std::shared_ptr<WorkerSession>> FindOpen(const std::string& handle) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::string task_;
  const std::shared_ptr<WorkerSession> legacy_;
  mutable Mutex mu_;
  Status going_down_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<std::string, std::shared_ptr<WorkerSession>> sessions_ ABSL_GUARDED_BY(mu_);
  RecentIds closed_ ABSL_GUARDED_BY(mu_);  // hashes of handles
};

}  // namespace millrace
