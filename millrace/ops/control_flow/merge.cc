// Merge: forwards the input that arrives.
#include "millrace/graph/host_memory.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

// The dimensions on which all inputs agree. Unknown while the back edge of a loop is missing.
Status MergeShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(const int64_t wanted, c.Attr<int64_t>("N"));
  PartialShape merged;
  if (c.num_inputs() >= 1 && c.num_inputs() == wanted) merged = c.input(0);
  for (int i = 1; i < c.num_inputs() && merged.known_rank(); ++i) {
    const PartialShape& other = c.input(i);
    if (other.rank() != merged.rank()) {
      merged = PartialShape();
      break;
    }
    for (int d = 0; d < merged.rank(); ++d) {
      if (merged.dim(d) != other.dim(d)) merged.set_dim(d, PartialShape::kUnknown);
    }
  }
  c.set_output(0, merged);
  c.set_output(1, PartialShape::Scalar());
  return absl::OkStatus();
}

// The executor runs it when one input has arrived; the others are uninitialized.
class MergeKernel : public Kernel {
 public:
  explicit MergeKernel(KernelInit&) {}

  Status Compute(KernelContext& ctx) override {
    for (int i = 0; i < ctx.num_inputs(); ++i) {
      if (!ctx.input(i).IsInitialized()) continue;
      ctx.SetOutput(0, ctx.input(i));
      MR_ASSIGN_OR_RETURN(Tensor* const index, ctx.AllocateOutput(1, Shape()));
      index->scalar<int32_t>() = i;
      return absl::OkStatus();
    }
    return Internal("no input of the merge has a value");
  }
};

MILLRACE_OP(Merge)
    .Input("inputs: N * T")
    .Output("output: T")
    .Output("value_index: int32")
    .Attr("T: type")
    .Attr("N: int >= 1")
    .Shape(MergeShape)
    .Control(ControlKind::kMerge)
    .Summary("Forwards the input that arrives, and its index.");

MILLRACE_OP(RefMerge)
    .Input("inputs: N * Ref(T)")
    .Output("output: Ref(T)")
    .Output("value_index: int32")
    .Attr("T: type")
    .Attr("N: int >= 1")
    .Shape(MergeShape)
    .Control(ControlKind::kMerge)
    .Summary("Merge for references to variables.");

MILLRACE_KERNEL(Merge, kCpu, MergeKernel);
MILLRACE_KERNEL(Merge, kCuda, MergeKernel);
MILLRACE_HOST_MEMORY(Merge, "GPU", "value_index");
MILLRACE_HOST_KERNEL(Merge, kCuda, "T", DType::kInt32);
MILLRACE_KERNEL(RefMerge, kCpu, MergeKernel);
MILLRACE_KERNEL(RefMerge, kCuda, MergeKernel);
MILLRACE_HOST_MEMORY(RefMerge, "GPU", "value_index");

}  // namespace
}  // namespace millrace
