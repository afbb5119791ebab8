#include "tests/late/late_kernel.h"

#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "millrace/executor/kernel_execution.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/runtime/kernel_registry.h"
#include "tests/late/late_device.h"

namespace millrace::late {
namespace {

bool IsVariableOp(const OpSchema& op) { return op.Has(OpTrait::kReadsVariable) || op.Has(OpTrait::kUpdatesVariable); }

bool IsNumbers(DType dtype) { return !IsRef(dtype) && IsPlain(dtype); }

// A kernel of the CPU that works in the memory of a late device. If the shapes of its results follow from those of its
// inputs, it only enqueues the work; otherwise it waits, as a kernel for a real card would have to.
class LateKernel : public Kernel {
 public:
  explicit LateKernel(std::unique_ptr<Kernel> kernel, const Node& node)
      : kernel_(std::move(kernel)), is_pure_(!node.op().is_stateful || node.op().Has(OpTrait::kRandom)) {
    for (int i = 0; i < node.num_inputs(); ++i)
      is_pure_ &= IsNumbers(node.input_type(i)) && IsNumbers(node.input(i).dtype());
    for (int i = 0; i < node.num_outputs(); ++i) is_pure_ &= IsNumbers(node.output_type(i));
  }

  Status Compute(KernelContext& ctx) override {
    LateCard* const card = LateDevice::Of(ctx.device())->card();
    const HolderName holder("node", ctx.node().name());
    const std::shared_ptr<const void>* const owner = ctx.step().owner;
    if (is_pure_ && owner != nullptr && *owner != nullptr) {
      if (std::optional<std::vector<Shape>> shapes = ShapesOfOutputs(ctx)) return Enqueue(ctx, card, *owner, *shapes);
    }
    return card->stream().Run([&]() -> Status {
      const HolderName on_its_thread("node", ctx.node().name());
      MR_RETURN_IF_ERROR(kernel_->Compute(ctx));
      for (int i = 0; i < ctx.num_outputs(); ++i) MR_RETURN_IF_ERROR(ToCard(card, ctx.mutable_output(i)));
      return absl::OkStatus();
    });
  }

 private:
  // On the card's thread: what the CPU's kernel has put into host memory.
  static Status ToCard(LateCard* card, Tensor* value) {
    if (!value->IsInitialized() || !IsNumbers(value->dtype()) || IsDeviceMemory(*value)) return absl::OkStatus();
    MR_ASSIGN_OR_RETURN(Tensor there, Tensor::Make(value->dtype(), value->shape(), card));
    if (value->TotalBytes() > 0) std::memcpy(there.raw_data(), value->raw_data(), value->TotalBytes());
    *value = std::move(there);
    return absl::OkStatus();
  }

  // Null if they depend on more than shapes and what is in host memory.
  static std::optional<std::vector<Shape>> ShapesOfOutputs(const KernelContext& ctx) {
    const Node& node = ctx.node();
    if (node.op().shape_fn == nullptr) return std::nullopt;
    std::vector<PartialShape> inputs;
    for (int i = 0; i < ctx.num_inputs(); ++i) inputs.emplace_back(ctx.input(i).shape());
    ShapeContext shapes(node, std::move(inputs), [](Endpoint) -> const Tensor* { return nullptr; });
    if (!node.op().shape_fn(shapes).ok()) return std::nullopt;
    std::vector<Shape> known;
    for (const PartialShape& shape : shapes.outputs()) {
      if (!shape.IsFullyDefined()) return std::nullopt;
      known.push_back(shape.AsShape());
    }
    return known;
  }

  Status Enqueue(KernelContext& ctx, LateCard* card, const std::shared_ptr<const void>& owner,
                 const std::vector<Shape>& shapes) {
    // Addresses, not references: memory is freed in the order of the stream.
    std::vector<Tensor> inputs, outputs;
    for (int i = 0; i < ctx.num_inputs(); ++i)
      inputs.push_back(IsDeviceMemory(ctx.input(i)) ? card->ViewOf(ctx.input(i)) : ctx.input(i));
    for (int i = 0; i < ctx.num_outputs(); ++i) {
      MR_ASSIGN_OR_RETURN(Tensor made, Tensor::Make(ctx.output_type(i), shapes[i], card));
      outputs.push_back(card->ViewOf(made));
      ctx.SetOutput(i, std::move(made));
    }
    card->stream().EnqueueReader([this, owner, node = &ctx.node(), device = ctx.device(), frame = ctx.frame_id(),
                                  iteration = ctx.iteration(), inputs = std::move(inputs),
                                  outputs = std::move(outputs)]() mutable -> Status {
      const StepContext step = StepContext::ForCompilation();
      std::vector<const Tensor*> pointers;
      for (const Tensor& input : inputs) pointers.push_back(&input);
      std::vector<Tensor> results(outputs.size());
      KernelContext own;
      KernelContextAccess access(own);
      access.Set(node, device, Allocator::Heap(), &step);
      access.SetInputs(pointers.data(), static_cast<int>(pointers.size()), 0);
      access.SetOutputs(results.data(), static_cast<int>(results.size()));
      access.SetFrame(frame, iteration, false);
      Status status = kernel_->Compute(own);
      for (size_t i = 0; status.ok() && i < outputs.size(); ++i) {
        if (results[i].shape() != outputs[i].shape()) {
          status = Internal("output ", i, " has shape ", results[i].shape().ToString(), ", but shape inference says ",
                            outputs[i].shape().ToString());
        } else if (outputs[i].TotalBytes() > 0) {
          std::memcpy(outputs[i].raw_data(), results[i].raw_data(), outputs[i].TotalBytes());
        }
      }
      return status.ok() ? status : NodeError(*node, *device, status);
    });
    return absl::OkStatus();
  }

  const std::unique_ptr<Kernel> kernel_;
  bool is_pure_;
};

StatusOr<std::unique_ptr<Kernel>> MakeLateKernel(const Node& node, Device* device) {
  MR_ASSIGN_OR_RETURN(std::unique_ptr<Kernel> kernel, KernelRegistry::Global().CreateAs(kCpu, node, device));
  if (kernel->is_async()) return Unimplemented("op ", node.type(), " waits, which a late device does not");
  return std::make_unique<LateKernel>(std::move(kernel), node);
}

}  // namespace

bool CanRunLate(const Node& node) {
  const OpSchema& op = node.op();
  if (!KernelRegistry::Global().Has(op.name, DeviceKindName(kCpu))) return false;
  if (op.control_kind != ControlKind::kNone || op.call_kind != CallKind::kNone) return false;
  for (const OpTrait trait : {OpTrait::kWaits, OpTrait::kSend, OpTrait::kReceive, OpTrait::kFunctionBorder}) {
    if (op.Has(trait)) return false;
  }
  if (absl::c_any_of(op.attrs, [](const OpAttr& attr) { return absl::StrContains(attr.type, "func"); })) return false;
  if (op.is_stateful && !IsVariableOp(op) && !op.Has(OpTrait::kRandom)) return false;
  for (int i = 0; i < node.num_inputs(); ++i) {
    const DType dtype = node.input_type(i);
    if (!IsNumbers(dtype) && !(IsVariableOp(op) && (IsRef(dtype) || dtype == DType::kResource))) return false;
  }
  for (int i = 0; i < node.num_outputs(); ++i) {
    if (!IsNumbers(node.output_type(i)) && !(IsVariableOp(op) && IsRef(node.output_type(i)))) return false;
  }
  return node.num_outputs() > 0 || IsVariableOp(op);
}

void RegisterLateKernels() {
  KernelRegistry::Global().SetFallback(kCuda, {.accepts = CanRunLate, .create = MakeLateKernel});
}

}  // namespace millrace::late
