// ExpandDims and Squeeze: add and remove dimensions of size one, sharing the memory.
#include <algorithm>

#include "millrace/graph/constant_ints.h"
#include "millrace/graph/gradient.h"
#include "millrace/graph/host_memory.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/array/int_list.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

// The position of the new dimension in a tensor of `rank`.
StatusOr<int> NewAxis(int64_t axis, int rank) {
  if (axis < -1 - rank || axis > rank) {
    return InvalidArgument("Tried to expand dim index ", axis, " for tensor with ", rank, " dimensions.");
  }
  return static_cast<int>(axis < 0 ? axis + rank + 1 : axis);
}

class ExpandDimsKernel : public Kernel {
 public:
  explicit ExpandDimsKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    const Tensor& input = ctx.input(0);
    MR_ASSIGN_OR_RETURN(const int64_t dim, ReadInt(ctx.input(1), "dim"));
    MR_ASSIGN_OR_RETURN(const int axis, NewAxis(dim, input.rank()));
    Shape shape = input.shape();
    shape.InsertDim(axis, 1);
    ctx.SetOutput(0, input.ViewAs(input.dtype(), std::move(shape)));
    return absl::OkStatus();
  }
};

Status ExpandDimsShape(ShapeContext& c) {
  const PartialShape& in = c.input(0);
  if (!in.known_rank()) return absl::OkStatus();
  const Tensor* dim = c.constant(1);
  if (dim == nullptr) {
    c.set_output(0, PartialShape::UnknownOfRank(in.rank() + 1));
    return absl::OkStatus();
  }
  MR_ASSIGN_OR_RETURN(const int64_t value, ReadInt(*dim, "dim"));
  MR_ASSIGN_OR_RETURN(const int axis, NewAxis(value, in.rank()));
  Shape::Dims dims(in.dims().begin(), in.dims().end());
  dims.insert(dims.begin() + axis, 1);
  c.set_output(0, PartialShape(absl::MakeConstSpan(dims)));
  return absl::OkStatus();
}

class SqueezeKernel : public Kernel {
 public:
  explicit SqueezeKernel(KernelInit& init) { init.Attr("squeeze_dims", &axes_); }
  Status Compute(KernelContext& ctx) override {
    const Tensor& input = ctx.input(0);
    IntList chosen(static_cast<size_t>(input.rank()), axes_.empty() ? 1 : 0);
    for (int64_t axis : axes_) {
      if (axis < -input.rank() || axis >= input.rank()) {
        return InvalidArgument("Tried to squeeze dim index ", axis, " for tensor with ", input.rank(), " dimensions.");
      }
      chosen[axis < 0 ? axis + input.rank() : axis] = 1;
    }
    Shape shape;
    for (int i = 0; i < input.rank(); ++i) {
      if (chosen[i] == 0 || (axes_.empty() && input.dim(i) != 1)) {
        shape.AddDim(input.dim(i));
      } else if (input.dim(i) != 1) {
        return InvalidArgument("Can not squeeze dim[", i, "], expected a dimension of 1, got ", input.dim(i));
      }
    }
    ctx.SetOutput(0, input.ViewAs(input.dtype(), std::move(shape)));
    return absl::OkStatus();
  }

 private:
  std::vector<int64_t> axes_;
};

Status SqueezeShape(ShapeContext& c) {
  const PartialShape& in = c.input(0);
  MR_ASSIGN_OR_RETURN(const std::vector<int64_t> axes, c.Attr<std::vector<int64_t>>("squeeze_dims"));
  if (!in.known_rank()) return absl::OkStatus();
  // Without axes, an unknown dimension may or may not be removed.
  if (axes.empty() && std::count(in.dims().begin(), in.dims().end(), -1) > 0) {
    return absl::OkStatus();
  }
  std::vector<bool> chosen(in.rank(), axes.empty());
  for (int64_t axis : axes) {
    MR_ASSIGN_OR_RETURN(const int at, ReadAxis(axis, in.rank(), "squeeze_dims"));
    chosen[at] = true;
  }
  PartialShape out = PartialShape::Scalar();
  for (int i = 0; i < in.rank(); ++i) {
    if (!chosen[i] || (axes.empty() && in.dim(i) != 1)) {
      out.AddDim(in.dim(i));
    } else if (in.dim(i) > 1 || in.dim(i) == 0) {
      return InvalidArgument("Can not squeeze dim[", i, "], expected a dimension of 1, got ", in.dim(i));
    }
  }
  c.set_output(0, out);
  return absl::OkStatus();
}

Status ShapeBackGradient(GradientContext& c) {
  c.set_input_grad(0, c.Reshape(c.grad(), c.Shape(c.input(0))));
  return absl::OkStatus();
}

MILLRACE_OP(ExpandDims)
    .Input("input: T")
    .Input("dim: Tdim")
    .Output("output: T")
    .Attr("T: type")
    .Attr("Tdim: {int32, int64} = int32")
    .Shape(ExpandDimsShape)
    .Gradient(ShapeBackGradient)
    .Ints(UnchangedInts)
    .Summary("Inserts a dimension of size 1.");
MILLRACE_KERNEL(ExpandDims, kCpu, ExpandDimsKernel);
MILLRACE_KERNEL(ExpandDims, kCuda, ExpandDimsKernel);
MILLRACE_HOST_MEMORY(ExpandDims, "GPU", "dim");
MILLRACE_HOST_KERNEL(ExpandDims, kCuda, "T", DType::kInt32);

MILLRACE_OP(Squeeze)
    .Input("input: T")
    .Output("output: T")
    .Attr("T: type")
    .Attr("squeeze_dims: list(int) >= 0 = []")
    .Shape(SqueezeShape)
    .Gradient(ShapeBackGradient)
    .Ints(UnchangedInts)
    .Summary("Removes dimensions of size 1.");
MILLRACE_KERNEL(Squeeze, kCpu, SqueezeKernel);
MILLRACE_KERNEL(Squeeze, kCuda, SqueezeKernel);
MILLRACE_HOST_KERNEL(Squeeze, kCuda, "T", DType::kInt32);

}  // namespace
}  // namespace millrace
