#include "millrace/cluster/worker_session.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

// A plan of more nodes is taken to run long until it has run.
constexpr int kManyNodes = 200;

}  // namespace

WorkerSession::WorkerSession(WorkerSessionOptions options) : options_(std::move(options)) {
  for (const auto& device : options_.devices) device_pointers_.push_back(device.get());
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
  CompileOptions options;
  options.devices = device_pointers_;
  options.passes = passes;
  // The plan, which calls this no longer, and its kernels may outlive the graph's place in the session.
  options.make_kernel = [this](const Node& node, Device* device) { return MakeKernel(node, device); };
  registered->functions = std::make_shared<FunctionTable>(options);
  registered->functions->UseLibrary(*graph);
  if (ReceiveGroups groups = FindReceiveGroups(*graph); !groups.groups.empty()) {
    registered->receives = std::make_shared<const ReceiveGroups>(std::move(groups));
  }
  registered->edges = FindStepEdges(graph.get());
  registered->late_reads = TakeLateReads(graph.get(), &context);
  MR_ASSIGN_OR_RETURN(registered->plan, CompileGraph(std::move(graph), std::move(context), options));
  registered->runs_long = registered->plan->num_nodes() > kManyNodes;
  return registered;
}

StatusOr<std::shared_ptr<Kernel>> WorkerSession::MakeKernel(const Node& node, Device* device) {
  const KernelRegistry& registry = KernelRegistry::Global();
  // Kernels with state of their own (a random op's place in its stream) are the session's, by node, so that steps of different
  // signatures continue one another. An edge between tasks has its name in one graph only.
  if (!node.op().is_stateful || node.is_type("_Send") || node.is_type("_Recv") || node.is_type("_HostSend") ||
      node.is_type("_HostRecv")) {
    return registry.Create(node, device);
  }
  MutexLock lock(&kernels_mu_);
  std::shared_ptr<Kernel>& kernel = stateful_kernels_[node.name()];
  if (kernel == nullptr) {
    MR_ASSIGN_OR_RETURN(kernel, registry.Create(node, device));
  }
  return kernel;
}

std::string WorkerSession::Register(std::shared_ptr<RegisteredGraph> graph) {
  MutexLock lock(&mu_);
  std::string handle = absl::StrFormat("%016x", next_graph_++);
  graphs_[handle] = std::move(graph);
  return handle;
}

StatusOr<std::shared_ptr<RegisteredGraph>> WorkerSession::Find(const std::string& graph_handle) const {
  MutexLock lock(&mu_);
  const auto it = graphs_.find(graph_handle);
  if (it == graphs_.end()) {
    return Aborted("there is no graph '", graph_handle, "' in session '", options_.handle,
                   "': the task may have been restarted");
  }
  return it->second;
}

Status WorkerSession::Deregister(const std::string& graph_handle) {
  MutexLock lock(&mu_);
  if (graphs_.erase(graph_handle) > 0) return absl::OkStatus();
  return Aborted("there is no graph '", graph_handle, "' in session '", options_.handle, "'");
}

void WorkerSession::DeregisterAll() {
  absl::flat_hash_map<std::string, std::shared_ptr<RegisteredGraph>> graphs;
  MutexLock lock(&mu_);
  graphs.swap(graphs_);  // they hold this session
}

}  // namespace millrace
