#include "millrace/task/task_session.h"

#include <utility>

#include "millrace/runtime/kernel_registry.h"
#include "millrace/task/running_parts.h"

namespace millrace {
namespace {

// An edge between tasks, or between a step and its client; its name is meaningful in one graph only.
bool IsEdge(const Node& node) { return node.IsSend() || node.IsReceive(); }

}  // namespace

TaskSession::TaskSession(TaskSessionOptions options)
    : options_(std::move(options)),
      memory_(MakeRef<MemoryBudget>(
          options_.handle.empty() ? std::string("the session") : absl::StrCat("session ", options_.handle),
          options_.memory_limit)) {
  for (const auto& device : options_.devices) device_pointers_.push_back(device.get());
}

TaskSession::~TaskSession() {
  idle_parts_.clear();
  memory_->Trim();
}

StatusOr<std::shared_ptr<Kernel>> TaskSession::MakeKernel(const Node& node, Device* device) {
  const KernelRegistry& registry = KernelRegistry::Global();
  if (!node.op().is_stateful || IsEdge(node)) return registry.Create(node, device);
  MutexLock lock(&mu_);
  std::shared_ptr<Kernel>& kernel = stateful_kernels_[absl::StrCat(node.name(), "@", device->name())];
  if (kernel == nullptr) {
    MR_ASSIGN_OR_RETURN(kernel, registry.Create(node, device));
  }
  return kernel;
}

}  // namespace millrace
