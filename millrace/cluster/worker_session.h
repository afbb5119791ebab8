// What one session has on one task: its graphs and the kernels they share.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "millrace/base/mutex.h"
#include "millrace/cluster/group_receives.h"
#include "millrace/cluster/peers.h"
#include "millrace/cluster/session_lease.h"
#include "millrace/cluster/step_edges.h"
#include "millrace/device/device.h"
#include "millrace/executor/compile_graph.h"
#include "millrace/executor/function_table.h"
#include "millrace/executor/plan.h"
#include "millrace/runtime/resource_manager.h"

namespace millrace {

class WorkerSession;

// Makes targets of the nodes that nobody uses: all of the graph runs, and passes are free with the rest.
void RunAllOf(const Graph& graph, PassContext* context);

// A graph compiled for this task.
struct RegisteredGraph {
  std::shared_ptr<WorkerSession> session;
  std::shared_ptr<FunctionTable> functions;
  std::unique_ptr<Plan> plan;
  std::shared_ptr<const ReceiveGroups> receives;  // null: all of them one by one
  std::shared_ptr<const StepEdges> edges;         // null: none is numbered
  std::vector<LateRead> late_reads;               // the plan's last fetches
  // Whether a step of it keeps the thread that starts it for long: by its size, and then by how long the last one did.
  std::atomic<bool> runs_long{false};
};

struct WorkerSessionOptions {
  std::string handle = {};
  // Whose session it is: the task of the master, and which of that task's processes.
  std::string master_task = {};
  int64_t master_incarnation = 0;
  std::vector<std::shared_ptr<Device>> devices = {};  // under their names in this session's cluster
  std::shared_ptr<ResourceManager> resources = nullptr;
  std::shared_ptr<const PeerSet> peers = nullptr;
  absl::Time opened = absl::InfinitePast();
};

// Thread-safe. Always behind a shared_ptr: graphs and steps keep it alive.
class WorkerSession : public std::enable_shared_from_this<WorkerSession> {
 public:
  explicit WorkerSession(WorkerSessionOptions options);

  const std::string& handle() const { return options_.handle; }
  // True when it was made by a process of the same task that is no more.
  bool IsOrphanedBy(const std::string& master_task, int64_t master_incarnation) const {
    return master_incarnation != 0 && !master_task.empty() && options_.master_task == master_task &&
           options_.master_incarnation != master_incarnation;
  }
  const std::shared_ptr<ResourceManager>& resources() const { return options_.resources; }
  const std::shared_ptr<const PeerSet>& peers() const { return options_.peers; }
  const std::vector<std::shared_ptr<Device>>& devices() const { return options_.devices; }
  const std::string& master() const { return options_.master_task; }
  absl::Time opened() const { return options_.opened; }
  const std::shared_ptr<SessionLease>& lease() const { return lease_; }

  // Compiles a part: every node of it has a device of this task.
  StatusOr<std::shared_ptr<RegisteredGraph>> Compile(std::unique_ptr<Graph> graph, PassContext context,
                                                     const PassOptions& passes);
  // Keeps it under a new handle: 16 hexadecimal digits.
  std::string Register(std::shared_ptr<RegisteredGraph> graph);
  // ABORTED for a handle that is not known.
  StatusOr<std::shared_ptr<RegisteredGraph>> Find(const std::string& graph_handle) const;
  Status Deregister(const std::string& graph_handle);
  void DeregisterAll();

 private:
  StatusOr<std::shared_ptr<Kernel>> MakeKernel(const Node& node, Device* device);

  const WorkerSessionOptions options_;
  const std::shared_ptr<SessionLease> lease_ = std::make_shared<SessionLease>();
  std::vector<Device*> device_pointers_;
  mutable Mutex mu_;
  int64_t next_graph_ ABSL_GUARDED_BY(mu_) = 1;
  absl::flat_hash_map<std::string, std::shared_ptr<RegisteredGraph>> graphs_ ABSL_GUARDED_BY(mu_);
  Mutex kernels_mu_;
  absl::flat_hash_map<std::string, std::shared_ptr<Kernel>> stateful_kernels_ ABSL_GUARDED_BY(kernels_mu_);
};

}  // namespace millrace
