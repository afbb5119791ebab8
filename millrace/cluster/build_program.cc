// From a signature to the parts of a step.
#include <utility>

#include "absl/strings/match.h"
#include "millrace/cluster/group_receives.h"
#include "millrace/cluster/master_session.h"
#include "millrace/cluster/step_edges.h"
#include "millrace/graph/graph_def.h"
#include "millrace/graph/passes/function_inliner.h"
#include "millrace/graph/shape_inference.h"

namespace millrace {
namespace {

bool AllOn(const Graph& graph, absl::string_view task) {
  const std::string prefix = absl::StrCat(task, "/");
  for (const Node* node : graph.nodes()) {
    if (!absl::StartsWith(node->assigned_device(), prefix)) return false;
  }
  return true;
}

// As a worker gets it: each node with the device that it runs on.
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

StatusOr<std::shared_ptr<MasterProgram>> MasterSession::Build(std::unique_ptr<Graph> graph, const CallableSpec& spec,
                                                              std::vector<std::pair<int, pb::GraphDef>>* remote) const {
  auto program = std::make_shared<MasterProgram>();
  program->spec = spec;
  MR_ASSIGN_OR_RETURN(PassContext context, ResolveSignature(graph.get(), spec));
  MR_RETURN_IF_ERROR(Prune(graph.get(), context));
  const PassOptions passes = Passes();
  const std::string& home = options_.tasks[0].name;
  std::vector<std::string> fetch_names = spec.fetches;
  // Calls are expanded here, since their bodies may be for several tasks.
  MR_RETURN_IF_ERROR(InlineFunctions(graph.get(), &context));
  MR_RETURN_IF_ERROR(Place(graph.get()));
  if (AllOn(*graph, home)) {
    ProgramPart part;
    for (size_t i = 0; i < context.feeds.size(); ++i) part.home_feeds.push_back(static_cast<int>(i));
    for (size_t i = 0; i < context.fetches.size(); ++i) part.home_fetches.push_back(static_cast<int>(i));
    MR_ASSIGN_OR_RETURN(part.graph, options_.worker_session->Compile(std::move(graph), std::move(context), passes));
    program->parts.push_back(std::move(part));
    return program;
  }
  // For GroupReceives, which takes what it gets: mistakes are found where the parts are compiled.
  (void)InferShapes(graph.get(), /*lenient=*/true);
  PartitionOptions partition = partition_;
  partition.feeds = context.feeds;
  partition.feed_names = spec.feeds;
  partition.fetches = context.fetches;
  partition.fetch_names = fetch_names;
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
    Part& cut = parts[i];
    ProgramPart part;
    part.feeds = std::move(cut.feeds);
    part.fetches = std::move(cut.fetches);
    if (cut.task == home) {
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
      MR_ASSIGN_OR_RETURN(part.graph, options_.worker_session->Compile(std::move(cut.graph), std::move(own), passes));
      home_edges = part.graph->edges;
    } else {
      const SessionTask* task = FindTask(cut.task);
      if (task == nullptr || task->peer == nullptr) return Internal("a part of the step is for ", cut.task, ", which the session does not know");
      part.peer = task->peer;
      part.incarnation = task->devices[0].incarnation();
      part.speaks_millrace = task->speaks_millrace;
      part.is_numbered = task->speaks_millrace;
      for (const ClientEdge& feed : part.feeds) part.feed_numbers.push_back(NumberOf(client_numbers[i].feeds, feed.key, &part.is_numbered));
      for (const ClientEdge& fetch : part.fetches) part.fetch_numbers.push_back(NumberOf(client_numbers[i].fetches, fetch.key, &part.is_numbered));
      remote->emplace_back(static_cast<int>(program->parts.size()), ForWorker(cut.graph.get()));
    }
    program->parts.push_back(std::move(part));
  }
  for (ProgramPart& part : program->parts) {
    if (part.peer != nullptr && home_edges != nullptr) part.edges_task = home_edges->FindTask(part.peer->name);
  }
  return program;
}

}  // namespace millrace
