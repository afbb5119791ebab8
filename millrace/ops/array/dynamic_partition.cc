// DynamicPartition: distributes slices to several tensors by partition number.
#include "millrace/graph/gradient.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/array/int_list.h"
#include "millrace/ops/array/partial_dims.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/tensor/copy_elements.h"

namespace millrace {
namespace {

class DynamicPartitionKernel : public Kernel {
 public:
  explicit DynamicPartitionKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    const Tensor& data = ctx.input(0);
    const Tensor& partitions = ctx.input(1);
    const int prefix = partitions.rank();
    const int n = ctx.num_outputs();
    if (data.rank() < prefix || data.shape().dims().first(prefix) != partitions.shape().dims()) {
      return InvalidArgument("data.shape must start with partitions.shape, got data.shape = ", data.shape().ToString(),
                             ", partitions.shape = ", partitions.shape().ToString());
    }
    const absl::Span<const int32_t> numbers = partitions.flat<int32_t>();
    IntList counts(n, 0);
    for (size_t i = 0; i < numbers.size(); ++i) {
      if (numbers[i] < 0 || numbers[i] >= n) {
        return InvalidArgument("partitions[", i, "] = ", numbers[i], " is not in [0, ", n, ")");
      }
      ++counts[numbers[i]];
    }
    absl::InlinedVector<Tensor*, 8> outs(n);
    for (int i = 0; i < n; ++i) {
      Shape shape({counts[i]});
      for (int d = prefix; d < data.rank(); ++d) shape.AddDim(data.dim(d));
      MR_ASSIGN_OR_RETURN(outs[i], ctx.AllocateOutput(i, shape));
    }
    const int64_t slice = data.shape().Product(prefix, data.rank());
    IntList at(n, 0);
    for (size_t i = 0; i < numbers.size(); ++i) {
      const int p = numbers[i];
      CopyElements(data.dtype(), data.raw_data(), static_cast<int64_t>(i) * slice, outs[p]->raw_data(), at[p]++ * slice,
                   slice);
    }
    return absl::OkStatus();
  }
};

Status DynamicPartitionShape(ShapeContext& c) {
  const PartialShape &data = c.input(0), &partitions = c.input(1);
  PartialShape each;
  if (data.known_rank() && partitions.known_rank()) {
    if (data.rank() < partitions.rank()) {
      return InvalidArgument("data of shape ", data.ToString(),
                             " does not start with the shape of "
                             "partitions, ",
                             partitions.ToString());
    }
    MR_RETURN_IF_ERROR(SubShape(data, 0, partitions.rank()).MergeWith(partitions).status());
    each = JoinShapes(PartialShape({-1}), SubShape(data, partitions.rank(), data.rank()));
  }
  for (int i = 0; i < c.num_outputs(); ++i) c.set_output(i, each);
  return absl::OkStatus();
}

// Partitioning the positions of the slices the same way gives the indices that stitch the gradients together.
Status DynamicPartitionGradient(GradientContext& c) {
  const int n = c.num_outputs();
  const Endpoint partitions = c.input(1);
  const Endpoint positions = c.Reshape(
      c.Op("Range", {c.Scalar<int32_t>(0), c.Op("Size", {partitions}), c.Scalar<int32_t>(1)}), c.Shape(partitions));
  Node* sorted = c.AddNode("DynamicPartition", {positions, partitions}, {{"num_partitions", n}});
  if (!c.ok()) return c.status();
  std::vector<Endpoint> inputs;
  for (int i = 0; i < n; ++i) inputs.push_back(sorted->output(i));
  for (int i = 0; i < n; ++i) inputs.push_back(c.grad(i));
  const Endpoint back = c.Op("ParallelDynamicStitch", inputs, {{"N", n}});
  c.set_input_grad(0, c.Reshape(back, c.Shape(c.input(0))));
  return absl::OkStatus();
}

MILLRACE_OP(DynamicPartition)
    .Input("data: T")
    .Input("partitions: int32")
    .Output("outputs: num_partitions * T")
    .Attr("num_partitions: int >= 1")
    .Attr("T: type")
    .Shape(DynamicPartitionShape)
    .Gradient(DynamicPartitionGradient)
    .Summary("Distributes slices to several tensors by partition number.");
MILLRACE_KERNEL(DynamicPartition, kCpu, DynamicPartitionKernel);

}  // namespace
}  // namespace millrace
