// From a signature to a step program.
#include <utility>

#include "millrace/base/log.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/session/direct_session.h"

namespace millrace {

StatusOr<std::shared_ptr<StepProgram>> DirectSession::Compile(const CallableSpec& spec) {
  auto program = std::make_shared<StepProgram>();
  MR_ASSIGN_OR_RETURN(program->feeds, CheckSignature(graph_, spec));
  program->spec = spec;
  MR_ASSIGN_OR_RETURN(program->plan, CompilePlan(graph_.Clone(), spec));
  return program;
}

StatusOr<std::unique_ptr<Plan>> DirectSession::CompilePlan(std::unique_ptr<Graph> graph, const CallableSpec& spec) {
  MR_ASSIGN_OR_RETURN(PassContext context, ResolveSignature(graph.get(), spec));
  return CompileGraph(std::move(graph), std::move(context), compile_options_);
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
