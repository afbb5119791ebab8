#include "millrace/cluster/worker/worker_session.h"

#include <utility>

#include "absl/strings/str_format.h"

namespace millrace {
namespace {

// A plan with more nodes is assumed to run long until it has been measured.
constexpr int kManyNodes = 200;

}  // namespace

WorkerSession::WorkerSession(WorkerSessionOptions options)
    : options_(std::move(options)),
      on_task_(options_.task->NewSession(options_.on_task)),
      group_leader_(options_.group_leader) {}

CollectiveScope WorkerSession::collectives() const {
  CollectiveScope scope{.task = options_.peers->self(), .peers = options_.peers};
  MutexLock lock(&mu_);
  scope.leader = group_leader_;
  scope.groups = group_leader_.empty() ? own_groups_ : options_.cluster_groups;
  return scope;
}

void WorkerSession::SetGroupLeader(const std::string& leader) {
  MutexLock lock(&mu_);
  group_leader_ = leader;
}

void RunAllOf(const Graph& graph, PassContext* context) {
  std::vector<bool> used(graph.max_id(), false);
  for (const Node* node : graph.nodes()) {
    for (const Endpoint& in : node->inputs()) used[in.node->id()] = true;
    for (const Node* before : node->control_inputs()) used[before->id()] = true;
  }
  for (Node* node : graph.nodes()) {
    if (!used[node->id()]) context->targets.push_back(node);
  }
}

StatusOr<std::shared_ptr<RegisteredGraph>> WorkerSession::Compile(std::unique_ptr<Graph> graph, PassContext context,
                                                                  const PassOptions& passes) {
  auto registered = std::make_shared<RegisteredGraph>();
  registered->session = shared_from_this();
  if (ReceiveGroups groups = FindReceiveGroups(*graph); !groups.groups.empty()) {
    registered->receives = std::make_shared<const ReceiveGroups>(std::move(groups));
  }
  registered->edges = FindStepEdges(graph.get());
  registered->last_fetches = TakeLastFetches(graph.get(), &context);
  MR_ASSIGN_OR_RETURN(registered->part,
                      options_.task->Compile(on_task_, std::move(graph), std::move(context), {.passes = passes}));
  registered->runs_long = registered->part.plan->num_nodes() > kManyNodes;
  return registered;
}

StatusOr<std::string> WorkerSession::Register(std::shared_ptr<RegisteredGraph> graph) {
  MutexLock lock(&mu_);
  if (closed_) return Aborted("session '", handle(), "' was closed while its graph was compiled");
  std::string handle = absl::StrFormat("%016x", next_graph_++);
  graphs_[handle] = std::move(graph);
  return handle;
}

StatusOr<std::shared_ptr<RegisteredGraph>> WorkerSession::Find(const std::string& graph_handle) const {
  MutexLock lock(&mu_);
  const auto it = graphs_.find(graph_handle);
  if (it == graphs_.end()) {
    return Aborted("there is no graph '", graph_handle, "' in session '", handle(),
                   "': the task may have been restarted");
  }
  return it->second;
}

Status WorkerSession::Deregister(const std::string& graph_handle) {
  std::shared_ptr<RegisteredGraph> graph;  // its plan and kernels are destroyed without the lock
  MutexLock lock(&mu_);
  if (const auto it = graphs_.find(graph_handle); it != graphs_.end()) {
    graph = std::move(it->second);
    graphs_.erase(it);
    return absl::OkStatus();
  }
  return Aborted("there is no graph '", graph_handle, "' in session '", handle(), "'");
}

void WorkerSession::DeregisterAll() {
  // They hold this session; destroyed without the lock.
  absl::flat_hash_map<std::string, std::shared_ptr<RegisteredGraph>> graphs;
  MutexLock lock(&mu_);
  closed_ = true;
  graphs.swap(graphs_);
}

}  // namespace millrace
