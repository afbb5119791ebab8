// A master's session on one task: its registered graphs, in addition to what every session has there (TaskSession).
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "millrace/base/mutex.h"
#include "millrace/cluster/collectives/collective_scope.h"
#include "millrace/cluster/step/group_receives.h"
#include "millrace/cluster/step/step_edges.h"
#include "millrace/cluster/watch/session_lease.h"
#include "millrace/cluster/worker/peers.h"
#include "millrace/task/task.h"

namespace millrace {

class WorkerSession;

// Makes the nodes without consumers targets, so that the whole graph runs; passes may rewrite the other nodes.
void RunAllOf(const Graph& graph, PassContext* context);

// A graph compiled for this task.
struct RegisteredGraph {
  std::shared_ptr<WorkerSession> session;
  CompiledPart part;
  std::shared_ptr<const ReceiveGroups> receives;  // null if all tensors are received one by one
  std::shared_ptr<const StepEdges> edges;         // null if no edge is numbered
  std::vector<LastFetch> last_fetches;            // appended to those of the part
  // Whether starting a step of it occupies the thread for long: guessed from its size at first, then measured on the
  // last step.
  std::atomic<bool> runs_long{false};
};

struct WorkerSessionOptions {
  std::shared_ptr<Task> task = nullptr;
  TaskSessionOptions on_task = {};
  // The owner of the session: the master's task, and the incarnation of that task's process.
  std::string master_task = {};
  int64_t master_incarnation = 0;
  std::shared_ptr<const PeerSet> peers = nullptr;
  // The task that forms the groups of its collective ops (empty: every task its own), and the groups of all sessions
  // of this task that have one.
  std::string group_leader = {};
  std::shared_ptr<GroupTable> cluster_groups = nullptr;
  absl::Time opened = absl::InfinitePast();
};

// Thread-safe. Held by shared_ptr: graphs and steps keep it alive.
class WorkerSession : public std::enable_shared_from_this<WorkerSession> {
 public:
  explicit WorkerSession(WorkerSessionOptions options);

  const std::string& handle() const { return on_task_->handle(); }
  // True if an earlier process of the same master task created it.
  bool IsOrphanedBy(const std::string& master_task, int64_t master_incarnation) const {
    return master_incarnation != 0 && !master_task.empty() && options_.master_task == master_task &&
           options_.master_incarnation != master_incarnation;
  }
  const std::shared_ptr<const PeerSet>& peers() const { return options_.peers; }
  const std::string& master() const { return options_.master_task; }
  absl::Time opened() const { return options_.opened; }
  const MemoryBudget& memory() const { return *on_task_->memory(); }
  const std::shared_ptr<SessionLease>& lease() const { return lease_; }

  CollectiveScope collectives() const;
  // A master that creates no session names the leader with each graph.
  void SetGroupLeader(const std::string& leader);

  // Compiles a part, all of whose nodes are placed on devices of this task.
  StatusOr<std::shared_ptr<RegisteredGraph>> Compile(std::unique_ptr<Graph> graph, PassContext context,
                                                     const PassOptions& passes);
  // Stores the graph under a new handle of 16 hexadecimal digits and returns the handle. ABORTED after DeregisterAll.
  StatusOr<std::string> Register(std::shared_ptr<RegisteredGraph> graph);
  // ABORTED for an unknown handle.
  StatusOr<std::shared_ptr<RegisteredGraph>> Find(const std::string& graph_handle) const;
  Status Deregister(const std::string& graph_handle);
  // The session is closed. Graphs keep it alive, so one that is registered later would do so for ever.
  void DeregisterAll();

 private:
  const WorkerSessionOptions options_;
  const std::shared_ptr<TaskSession> on_task_;
  const std::shared_ptr<SessionLease> lease_ = std::make_shared<SessionLease>();
  const std::shared_ptr<GroupTable> own_groups_ = std::make_shared<GroupTable>();
  mutable Mutex mu_;
  std::string group_leader_ ABSL_GUARDED_BY(mu_);
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  int64_t next_graph_ ABSL_GUARDED_BY(mu_) = 1;
  absl::flat_hash_map<std::string, std::shared_ptr<RegisteredGraph>> graphs_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace
