#include "millrace/cluster/master/program_builder.h"

#include <utility>

#include "absl/strings/match.h"
#include "millrace/cluster/collectives/graph_key.h"
#include "millrace/cluster/step/group_receives.h"
#include "millrace/cluster/step/step_edges.h"
#include "millrace/graph/graph_def.h"
#include "millrace/graph/passes/function_inliner.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

bool AllOn(const Graph& graph, absl::string_view task) {
  const std::string prefix = absl::StrCat(task, "/");
  for (const Node* node : graph.nodes()) {
    if (!absl::StartsWith(node->assigned_device(), prefix)) return false;
  }
  return true;
}

// The graph as it is sent to a worker: each node requests the device that it runs on.
pb::GraphDef ForWorker(Graph* graph) {
  for (Node* node : graph->nodes()) graph->SetRequestedDevice(node, node->assigned_device());
  return ExportGraphDef(*graph);
}

int NumberOf(const absl::flat_hash_map<std::string, int>& numbers, const std::string& key, bool* all_known) {
  const auto it = numbers.find(key);
  if (it != numbers.end()) return it->second;
  *all_known = false;
  return -1;
}

}  // namespace

ProgramBuilder::ProgramBuilder(ProgramBuilderOptions options) : options_(std::move(options)) {
  home_device_ = options_.tasks[0].devices[0].name();
  for (const SessionTask& task : options_.tasks) {
    for (const pb::DeviceAttributes& device : task.devices) {
      placement_.devices.push_back(device.name());
      partition_.incarnations[device.name()] = device.incarnation();
    }
  }
  placement_.default_device = options_.tasks[0].name;
  placement_.allow_soft_placement = options_.allow_soft_placement;
  placement_.has_kernel = [](const Node& node, const std::string& device_type) {
    return node.is_type("NoOp") || KernelRegistry::Global().HasFor(node, device_type);
  };
  partition_.home_task = options_.tasks[0].name;
}

const SessionTask* ProgramBuilder::FindTask(absl::string_view name) const {
  for (const SessionTask& task : options_.tasks) {
    if (task.name == name) return &task;
  }
  return nullptr;
}

StatusOr<ProgramPart> ProgramBuilder::PartAtHome(Part cut) const {
  ProgramPart part;
  part.feeds = std::move(cut.feeds);
  part.fetches = std::move(cut.fetches);
  PassContext own;
  for (const auto& [index, tensor] : cut.home_feeds) {
    part.home_feeds.push_back(index);
    own.feeds.push_back(tensor);
  }
  for (const auto& [index, tensor] : cut.home_fetches) {
    part.home_fetches.push_back(index);
    own.fetches.push_back(tensor);
  }
  RunAllOf(*cut.graph, &own);
  MR_ASSIGN_OR_RETURN(part.graph,
                      options_.worker_session->Compile(std::move(cut.graph), std::move(own), options_.passes));
  return part;
}

StatusOr<ProgramPart> ProgramBuilder::PartAtPeer(Part cut, const ClientNumbers& numbers, pb::GraphDef* graph) const {
  const SessionTask* const task = FindTask(cut.task);
  if (task == nullptr || task->peer == nullptr)
    return Internal("a part of the step is for ", cut.task, ", which the session does not know");
  ProgramPart part;
  part.feeds = std::move(cut.feeds);
  part.fetches = std::move(cut.fetches);
  part.peer = task->peer;
  part.incarnation = task->devices[0].incarnation();
  part.speaks_millrace = task->speaks_millrace;
  part.is_numbered = task->speaks_millrace;
  for (const ClientEdge& feed : part.feeds)
    part.feed_numbers.push_back(NumberOf(numbers.feeds, feed.key, &part.is_numbered));
  for (const ClientEdge& fetch : part.fetches)
    part.fetch_numbers.push_back(NumberOf(numbers.fetches, fetch.key, &part.is_numbered));
  *graph = ForWorker(cut.graph.get());
  return part;
}

StatusOr<std::shared_ptr<MasterProgram>> ProgramBuilder::Build(
    std::unique_ptr<Graph> graph, const CallableSpec& spec, std::vector<std::pair<int, pb::GraphDef>>* remote) const {
  auto program = std::make_shared<MasterProgram>();
  program->spec = spec;
  MR_ASSIGN_OR_RETURN(PassContext context, ResolveSignature(graph.get(), spec));
  MR_RETURN_IF_ERROR(Prune(graph.get(), context));
  const std::string& home = options_.tasks[0].name;
  // Calls are expanded here, since their bodies may be for several tasks.
  MR_RETURN_IF_ERROR(InlineFunctions(graph.get(), &context));
  program->collective_graph_key = CollectiveGraphKey(*graph);
  MR_RETURN_IF_ERROR(Place(graph.get()));
  if (AllOn(*graph, home)) {
    ProgramPart part;
    for (size_t i = 0; i < context.feeds.size(); ++i) part.home_feeds.push_back(static_cast<int>(i));
    for (size_t i = 0; i < context.fetches.size(); ++i) part.home_fetches.push_back(static_cast<int>(i));
    MR_ASSIGN_OR_RETURN(part.graph,
                        options_.worker_session->Compile(std::move(graph), std::move(context), options_.passes));
    program->parts.push_back(std::move(part));
    return program;
  }
  // For GroupReceives, which uses whatever is known; errors are reported when the parts are compiled.
  (void)InferShapes(graph.get(), /*lenient=*/true);
  PartitionOptions partition = partition_;
  partition.feeds = context.feeds;
  partition.feed_names = spec.feeds;
  partition.fetches = context.fetches;
  partition.fetch_names = spec.fetches;
  MR_ASSIGN_OR_RETURN(std::vector<Part> parts, PartitionGraph(std::move(graph), partition));
  const auto speaks_millrace = [this, &home](absl::string_view task) {
    const SessionTask* const known = task == home ? nullptr : FindTask(std::string(task));
    return task == home || (known != nullptr && known->speaks_millrace);
  };
  GroupReceives(absl::MakeSpan(parts), speaks_millrace);
  std::vector<ClientNumbers> client_numbers;
  NumberEdges(absl::MakeSpan(parts), home, speaks_millrace, &client_numbers);
  std::shared_ptr<const StepEdges> home_edges;
  for (size_t i = 0; i < parts.size(); ++i) {
    ProgramPart part;
    if (parts[i].task == home) {
      MR_ASSIGN_OR_RETURN(part, PartAtHome(std::move(parts[i])));
      home_edges = part.graph->edges;
    } else {
      pb::GraphDef def;
      MR_ASSIGN_OR_RETURN(part, PartAtPeer(std::move(parts[i]), client_numbers[i], &def));
      remote->emplace_back(static_cast<int>(program->parts.size()), std::move(def));
    }
    program->parts.push_back(std::move(part));
  }
  for (ProgramPart& part : program->parts) {
    if (part.peer != nullptr && home_edges != nullptr) part.edges_task = home_edges->FindTask(part.peer->name);
  }
  return program;
}

}  // namespace millrace
