// From a signature to a step program.
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_join.h"
#include "millrace/base/log.h"
#include "millrace/graph/graph_def.h"
#include "millrace/graph/passes/pass.h"
#include "millrace/graph/placement.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/session/direct_session.h"

namespace millrace {
namespace {

// Tensors of a graph by name. Says which kind of name was not found.
StatusOr<std::vector<Endpoint>> FindAll(const Graph& graph, const std::vector<std::string>& names,
                                        absl::string_view what) {
  std::vector<Endpoint> found;
  found.reserve(names.size());
  for (const std::string& name : names) {
    StatusOr<Endpoint> e = graph.FindEndpoint(name);
    if (!e.ok()) return WithPrefix(absl::StrCat(what, " ", name, ": "), e.status());
    if (e->node->num_outputs() == 0) {
      return InvalidArgument(what, " ", name, ": node ", e->node->name(), " (", e->node->type(),
                             ") has no outputs; run it as a target instead");
    }
    found.push_back(*e);
  }
  return found;
}

StatusOr<std::vector<Node*>> FindTargets(const Graph& graph, const std::vector<std::string>& names) {
  std::vector<Node*> found;
  for (const std::string& name : names) {
    absl::string_view node_name = name;
    // A target may be written as a tensor; the node is meant.
    if (const size_t colon = node_name.rfind(':'); colon != absl::string_view::npos) {
      node_name = node_name.substr(0, colon);
    }
    Node* node = graph.FindNode(node_name);
    if (node == nullptr) return NotFound("target ", name, ": there is no node of that name in the graph");
    found.push_back(node);
  }
  return found;
}

bool IsPlaceholder(const Node& node) {
  return node.is_type("Placeholder") || node.is_type("PlaceholderV2");
}

// A fed tensor that is no placeholder is cut off by one of unknown shape: whatever is fed may differ from
// what its node would have made, and no pass may conclude from the node.
StatusOr<Endpoint> CutAtFeed(Graph* graph, const Endpoint& feed) {
  NodeSpec spec;
  spec.name = graph->UniqueName(absl::StrCat(feed.node->name(), "/_fed_", feed.index));
  spec.op = "Placeholder";
  spec.attrs["dtype"].set_type(static_cast<pb::DataType>(BaseType(feed.dtype())));
  spec.attrs["shape"].mutable_shape()->set_unknown_rank(true);
  MR_ASSIGN_OR_RETURN(Node * cut, graph->AddNode(std::move(spec)));
  graph->SetRequestedDevice(cut, feed.node->requested_device());
  for (Node* node : graph->nodes()) {
    for (int i = 0; i < node->num_inputs(); ++i) {
      if (node->input(i) == feed) graph->SetInput(node, i, cut->output(0));
    }
  }
  return cut->output(0);
}

// Runs one node on constants, for constant folding.
StatusOr<std::vector<Tensor>> Evaluate(const Node& node, absl::Span<const Tensor> inputs,
                                       Device* device) {
  MR_ASSIGN_OR_RETURN(std::unique_ptr<Kernel> kernel, KernelRegistry::Global().Create(node, device));
  if (kernel->is_async()) return Unimplemented("an asynchronous kernel is not folded");
  std::vector<const Tensor*> pointers;
  for (const Tensor& t : inputs) pointers.push_back(&t);
  std::vector<Tensor> outputs(node.num_outputs());
  CancellationManager cancellation;
  ResourceManager resources;
  StepContext step;
  step.cancellation = &cancellation;
  step.resources = &resources;
  KernelContext ctx;
  KernelContextAccess access(ctx);
  access.Set(&node, device, device->allocator(), &step);
  access.SetInputs(pointers.data(), static_cast<int>(pointers.size()), 0);
  access.SetOutputs(outputs.data(), static_cast<int>(outputs.size()));
  MR_RETURN_IF_ERROR(kernel->Compute(ctx));
  for (const Tensor& t : outputs) {
    if (!t.IsInitialized()) return Internal("node ", node.name(), " left an output unset");
  }
  return outputs;
}

}  // namespace

StatusOr<std::shared_ptr<StepProgram>> DirectSession::Compile(const CallableSpec& spec) {
  if (spec.fetches.empty() && spec.targets.empty()) {
    return InvalidArgument("nothing to do: neither a tensor to fetch nor a node to run was given");
  }
  auto program = std::make_shared<StepProgram>();
  program->spec = spec;
  MR_ASSIGN_OR_RETURN(const std::vector<Endpoint> feeds, FindAll(graph_, spec.feeds, "feed"));
  MR_ASSIGN_OR_RETURN(const std::vector<Endpoint> fetches, FindAll(graph_, spec.fetches, "fetch"));
  MR_RETURN_IF_ERROR(FindTargets(graph_, spec.targets).status());
  absl::flat_hash_set<Endpoint> fed;
  for (size_t i = 0; i < feeds.size(); ++i) {
    if (!fed.insert(feeds[i]).second) return InvalidArgument("tensor ", spec.feeds[i], " is fed twice");
    program->feed_types.push_back(BaseType(feeds[i].dtype()));
    PartialShape shape;
    if (IsPlaceholder(*feeds[i].node)) {
      shape = feeds[i].node->AttrOr<PartialShape>("shape", PartialShape());
      // Graphs of old producers write "unknown" as a scalar shape.
      if (shape.rank() == 0 && graph_.versions().producer() < 24) shape = PartialShape();
    }
    program->feed_shapes.push_back(std::move(shape));
  }
  for (size_t i = 0; i < fetches.size(); ++i) {
    if (fed.contains(fetches[i])) return InvalidArgument("tensor ", spec.fetches[i], " is both fed and fetched");
  }
  MR_ASSIGN_OR_RETURN(program->plan,
                      CompilePlan(graph_.Clone(), spec.feeds, spec.fetches, spec.targets));
  return program;
}

StatusOr<std::unique_ptr<Plan>> DirectSession::CompilePlan(std::unique_ptr<Graph> graph,
                                                           const std::vector<std::string>& feeds,
                                                           const std::vector<std::string>& fetches,
                                                           const std::vector<std::string>& targets) {
  PassContext context;
  MR_ASSIGN_OR_RETURN(context.feeds, FindAll(*graph, feeds, "feed"));
  MR_ASSIGN_OR_RETURN(context.fetches, FindAll(*graph, fetches, "fetch"));
  MR_ASSIGN_OR_RETURN(context.targets, FindTargets(*graph, targets));
  for (Endpoint& feed : context.feeds) {
    if (!IsPlaceholder(*feed.node)) {
      MR_ASSIGN_OR_RETURN(feed, CutAtFeed(graph.get(), feed));
    }
  }
  MR_RETURN_IF_ERROR(Prune(graph.get(), context));
  PlacementOptions placement;
  for (const auto& device : devices_) placement.devices.push_back(device->name());
  placement.has_kernel = [](const Node& node, const std::string& device_type) {
    return node.is_type("NoOp") || KernelRegistry::Global().Has(node.type(), device_type);
  };
  placement.allow_soft_placement = options_.allow_soft_placement;
  MR_RETURN_IF_ERROR(PlaceNodes(graph.get(), placement));
  if (options_.log_device_placement) LogPlacement(*graph);
  MR_RETURN_IF_ERROR(ReadAfterUpdates(graph.get()));
  MR_RETURN_IF_ERROR(InferShapes(graph.get(), /*lenient=*/true));
  context.evaluate = [this](const Node& node, absl::Span<const Tensor> inputs) {
    return Evaluate(node, inputs, devices_[0].get());
  };
  MR_RETURN_IF_ERROR(RunPasses(graph.get(), context, options_.passes));

  PlanOptions plan_options;
  plan_options.feeds = context.feeds;
  // A pass may have put another node in a fetched one's place; the name is what holds.
  MR_ASSIGN_OR_RETURN(plan_options.fetches, FindAll(*graph, fetches, "fetch"));
  MR_RETURN_IF_ERROR(InsertCopies(graph.get(), &plan_options.fetches));
  plan_options.device_of = [this](const Node& node) { return FindDevice(node); };
  plan_options.make_kernel = [this](const Node& node, Device* device) { return MakeKernel(node, device); };
  return Plan::Compile(std::move(graph), plan_options);
}

// Kernels with state of their own (a random op's place in its stream) are the session's, by node, so that
// steps of different signatures continue one another.
StatusOr<std::shared_ptr<Kernel>> DirectSession::MakeKernel(const Node& node, Device* device) {
  const KernelRegistry& registry = KernelRegistry::Global();
  if (!node.op().is_stateful) return registry.Create(node, device);
  MutexLock lock(&kernels_mu_);
  std::shared_ptr<Kernel>& kernel = stateful_kernels_[node.name()];
  if (kernel == nullptr) {
    MR_ASSIGN_OR_RETURN(kernel, registry.Create(node, device));
  }
  return kernel;
}

void DirectSession::LogPlacement(const Graph& graph) const {
  for (const Node* node : graph.nodes()) {
    MR_LOG(Info, node->name(), ": (", node->type(), "): ", node->assigned_device());
  }
}

}  // namespace millrace
