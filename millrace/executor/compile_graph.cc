#include "millrace/executor/compile_graph.h"

#include <utility>

#include "millrace/base/exception_status.h"
#include "millrace/executor/kernel_execution.h"
#include "millrace/graph/passes/function_inliner.h"
#include "millrace/graph/placement.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/runtime/resource_manager.h"

namespace millrace {
namespace {

// Runs one node on constants, for constant folding.
StatusOr<std::vector<Tensor>> Evaluate(const Node& node, absl::Span<const Tensor> inputs, Device* device) {
  MR_ASSIGN_OR_RETURN(std::unique_ptr<Kernel> kernel, KernelRegistry::Global().Create(node, device));
  if (kernel->is_async()) return Unimplemented("an asynchronous kernel is not folded");
  std::vector<Tensor> outputs(node.num_outputs());
  CancellationManager cancellation;
  ResourceManager resources;
  const StepContext step = StepContext::ForCompilation(&cancellation, &resources);
  PlanNode n;
  n.node = &node;
  n.kernel = kernel.get();
  n.device = device;
  n.num_inputs = static_cast<int>(inputs.size());
  n.num_outputs = node.num_outputs();
  KernelExecution execution;
  const Tensor** const pointers = execution.RoomForInputs(n.num_inputs);
  for (int i = 0; i < n.num_inputs; ++i) pointers[i] = &inputs[i];
  MR_RETURN_IF_ERROR(execution.Run(n, {.step = &step, .allocator = device->allocator()}, 0, outputs.data()));
  for (const Tensor& t : outputs) {
    if (!t.IsInitialized()) return Internal("node ", node.name(), " left an output unset");
  }
  return outputs;
}

StatusOr<std::unique_ptr<Plan>> CompileOrThrow(std::unique_ptr<Graph> graph, PassContext context,
                                               const CompileOptions& options) {
  std::vector<std::string> fetch_names;
  for (const Endpoint& e : context.fetches) fetch_names.push_back(e.name());
  MR_RETURN_IF_ERROR(Prune(graph.get(), context));
  if (options.passes.inline_functions) MR_RETURN_IF_ERROR(InlineFunctions(graph.get(), &context));
  MR_RETURN_IF_ERROR(PlaceGraph(graph.get(), options));
  if (options.on_placed != nullptr) options.on_placed(*graph);
  MR_RETURN_IF_ERROR(ReadAfterUpdates(graph.get()));
  MR_RETURN_IF_ERROR(InferShapes(graph.get(), /*lenient=*/true));
  context.evaluate = [&](const Node& node, absl::Span<const Tensor> inputs) {
    return Evaluate(node, inputs, options.devices[0]);
  };
  MR_RETURN_IF_ERROR(RunPasses(graph.get(), context, options.passes));
  MR_RETURN_IF_ERROR(OrderCollectives(graph.get()));

  PlanOptions plan_options;
  plan_options.feeds = context.feeds;
  // A pass may have replaced a fetched node by another one of the same name, so find it by name. A fetch of a feed
  // keeps its node, which the graph no longer lists.
  for (size_t i = 0; i < fetch_names.size(); ++i) {
    StatusOr<Endpoint> found = graph->FindEndpoint(fetch_names[i]);
    plan_options.fetches.push_back(found.ok() ? *found : context.fetches[i]);
  }
  MR_RETURN_IF_ERROR(InsertCopies(graph.get(), &plan_options.fetches));
  plan_options.device_of = [&](const Node& node) -> StatusOr<Device*> {
    for (Device* device : options.devices) {
      if (device->name() == node.assigned_device()) return device;
    }
    return Internal("node ", node.name(), " was placed on ", node.assigned_device(), ", which does not exist");
  };
  plan_options.make_kernel = options.make_kernel;
  return Plan::Compile(std::move(graph), plan_options);
}

}  // namespace

Status PlaceGraph(Graph* graph, const CompileOptions& options) {
  PlacementOptions placement;
  for (const Device* device : options.devices) placement.devices.push_back(device->name());
  placement.has_kernel = [](const Node& node, const std::string& device_type) {
    return node.is_type("NoOp") || KernelRegistry::Global().HasFor(node, device_type);
  };
  placement.allow_soft_placement = options.allow_soft_placement;
  return PlaceNodes(graph, placement);
}

StatusOr<std::unique_ptr<Plan>> CompileGraph(std::unique_ptr<Graph> graph, PassContext context,
                                             const CompileOptions& options) {
  return CatchExceptions([&] { return CompileOrThrow(std::move(graph), std::move(context), options); });
}

}  // namespace millrace
