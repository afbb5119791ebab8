#include "millrace/executor/kernel_execution.h"

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "millrace/runtime/variable.h"

namespace millrace {

Status KernelExecution::ReadReferences(const PlanNode& n) {
  const size_t needed = 64 - __builtin_clzll(n.deref);
  if (values_.size() < needed) values_.resize(needed);
  for (uint64_t left = n.deref; left != 0; left &= left - 1) {
    const int k = __builtin_ctzll(left);
    if (!inputs_[k]->IsInitialized()) continue;  // dead, or an input that a Merge did not get
    StatusOr<Tensor> value = ReadReference(*inputs_[k]);
    if (!value.ok()) return NodeError(*n.node, *n.device, value.status());
    values_[k] = *std::move(value);
    inputs_[k] = &values_[k];
  }
  return absl::OkStatus();
}

void KernelExecution::LetGoOfValues(const PlanNode& n) {
  for (uint64_t left = n.deref; left != 0; left &= left - 1) values_[__builtin_ctzll(left)].Reset();
}

void KernelExecution::Record(const PlanNode& n, const RunArgs& args, const Tensor* outputs, int64_t start) const {
  if (is_dead_) return;  // it ran only to forward deadness
  args.stats->Record(*n.node, *n.device, start, args.stats->NowNanos(), absl::MakeConstSpan(outputs, n.num_outputs));
}

StatusOr<Tensor> ConstantValue(const PlanNode& n) {
  const StepContext step = StepContext::ForCompilation();
  Tensor value;
  KernelExecution execution;
  MR_RETURN_IF_ERROR(execution.Run(n, {.step = &step, .allocator = n.device->allocator()}, 0, &value));
  return value;
}

Status NodeError(const Node& node, const Device& device, const Status& status) {
  const absl::string_view message = status.message();
  // A status that already names a node comes from inside (a function, another task).
  if (absl::StrContains(message, "{{node ")) return status;
  std::string names = absl::StrJoin(node.origins(), "}}, {{node ");
  return Status(status.code(),
                absl::StrCat(message, "\n\t [[{{node ", names, "}}]] (", node.type(), " on ", device.name(), ")"));
}

Status DeadFetchError(const Endpoint& fetch) {
  return Internal("the fetched tensor ", fetch.name(),
                  " is dead: the branch that computes it was not taken\n\t [[{{node ", fetch.node->name(), "}}]]");
}

StatusOr<Tensor> ReadReference(const Tensor& reference) {
  const ResourceHandle& handle = reference.scalar<ResourceHandle>();
  if (const auto* variable = dynamic_cast<const Variable*>(handle.resource.get())) return variable->Read();
  // A reference to a queue, table or similar resource reads as its container and name.
  if (handle.resource && reference.dtype() == RefType(DType::kString)) {
    return Tensor::Of<std::string>({handle.container, handle.name});
  }
  return Internal("a reference does not point to a variable");
}

}  // namespace millrace
