// Pack and Unpack: stack tensors of one shape along a new dimension, and split them again.
#include <cstring>

#include "millrace/graph/constant_ints.h"
#include "millrace/graph/gradient.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/array/int_list.h"
#include "millrace/ops/kernels/strided_copy.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

class PackKernel : public Kernel {
 public:
  explicit PackKernel(KernelInit& init) { init.Attr("axis", &axis_); }
  Status Compute(KernelContext& ctx) override {
    const Shape& first = ctx.input(0).shape();
    const int n = ctx.num_inputs();
    for (int i = 1; i < n; ++i) {
      if (ctx.input(i).shape() != first) {
        return InvalidArgument("Shapes of all inputs must match: values[0].shape = ", first.ToString(), " != values[",
                               i, "].shape = ", ctx.input(i).shape().ToString());
      }
    }
    MR_ASSIGN_OR_RETURN(const int axis, ReadAxis(axis_, first.rank() + 1, "axis"));
    Shape::Dims dims(first.dims().begin(), first.dims().end());
    dims.insert(dims.begin() + axis, n);
    MR_ASSIGN_OR_RETURN(const Shape shape, Shape::Make(dims));
    if (n == 1) {
      ctx.SetOutput(0, ctx.input(0).ViewAs(ctx.input(0).dtype(), shape));
      return absl::OkStatus();
    }
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateDeviceOutput(0, shape));
    const int64_t outer = first.Product(0, axis);
    const int64_t run = first.Product(axis, first.rank());
    for (int i = 0; i < n; ++i) {
      CopyBox box;
      box.Add(outer, run, run * n);
      box.Add(run, 1, 1);
      MR_RETURN_IF_ERROR(StridedCopy(ctx, std::move(box), ctx.input(i), 0, out, i * run));
    }
    return absl::OkStatus();
  }

 private:
  int64_t axis_ = 0;
};

Status PackShape(ShapeContext& c) {
  PartialShape each = c.input(0);
  for (int i = 1; i < c.num_inputs(); ++i) {
    MR_ASSIGN_OR_RETURN(each, each.MergeWith(c.input(i)));
  }
  if (!each.known_rank()) return absl::OkStatus();
  MR_ASSIGN_OR_RETURN(const int64_t wanted, c.Attr<int64_t>("axis"));
  MR_ASSIGN_OR_RETURN(const int axis, ReadAxis(wanted, each.rank() + 1, "axis"));
  Shape::Dims dims(each.dims().begin(), each.dims().end());
  dims.insert(dims.begin() + axis, c.num_inputs());
  c.set_output(0, PartialShape(absl::MakeConstSpan(dims)));
  return absl::OkStatus();
}

Status PackGradient(GradientContext& c) {
  Node* parts = c.AddNode("Unpack", {c.grad()}, {{"num", c.num_inputs()}, {"axis", c.AttrOr<int64_t>("axis", 0)}});
  if (!c.ok()) return c.status();
  for (int i = 0; i < c.num_inputs(); ++i) c.set_input_grad(i, parts->output(i));
  return absl::OkStatus();
}

class UnpackKernel : public Kernel {
 public:
  explicit UnpackKernel(KernelInit& init) { init.Attr("axis", &axis_); }
  Status Compute(KernelContext& ctx) override {
    const Tensor& input = ctx.input(0);
    const int n = ctx.num_outputs();
    MR_ASSIGN_OR_RETURN(const int axis, ReadAxis(axis_, input.rank(), "axis"));
    if (input.dim(axis) != n) {
      return InvalidArgument("Input shape axis ", axis, " must equal ", n, ", got shape ", input.shape().ToString());
    }
    Shape shape = input.shape();
    shape.RemoveDim(axis);
    const int64_t outer = shape.Product(0, axis);
    const int64_t run = shape.Product(axis, shape.rank());
    // Sufficiently aligned rows share the input's memory.
    constexpr size_t kRowAlignment = 16;
    const size_t bytes = static_cast<size_t>(run) * SizeOf(input.dtype());
    if (outer == 1 && bytes > 0 && bytes % kRowAlignment == 0) {
      const Tensor rows = input.ViewAs(input.dtype(), Shape({n, run}));
      for (int i = 0; i < n; ++i) {
        ctx.SetOutput(i, shape.rank() == 1 ? rows.Row(i) : rows.Row(i).ViewAs(input.dtype(), shape));
      }
      return absl::OkStatus();
    }
    for (int i = 0; i < n; ++i) {
      MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateDeviceOutput(i, shape));
      if (outer == 1 && IsPlain(out->dtype()) && ctx.device()->shares_host_memory()) {
        if (bytes > 0) std::memcpy(out->raw_data(), static_cast<const char*>(input.raw_data()) + i * bytes, bytes);
        continue;
      }
      CopyBox box;
      box.Add(outer, run * n, run);
      box.Add(run, 1, 1);
      MR_RETURN_IF_ERROR(StridedCopy(ctx, std::move(box), input, i * run, out, 0));
    }
    return absl::OkStatus();
  }

 private:
  int64_t axis_ = 0;
};

Status UnpackShape(ShapeContext& c) {
  const PartialShape& in = c.input(0);
  PartialShape each;
  if (in.known_rank()) {
    MR_ASSIGN_OR_RETURN(const int64_t wanted, c.Attr<int64_t>("axis"));
    MR_ASSIGN_OR_RETURN(const int axis, ReadAxis(wanted, in.rank(), "axis"));
    if (in.dim(axis) >= 0 && in.dim(axis) != c.num_outputs()) {
      return InvalidArgument("dimension ", axis, " of ", in.ToString(), " must be ", c.num_outputs());
    }
    each = PartialShape::Scalar();
    for (int i = 0; i < in.rank(); ++i) {
      if (i != axis) each.AddDim(in.dim(i));
    }
  }
  for (int i = 0; i < c.num_outputs(); ++i) c.set_output(i, each);
  return absl::OkStatus();
}

Status UnpackGradient(GradientContext& c) {
  std::vector<Endpoint> grads;
  for (int i = 0; i < c.num_outputs(); ++i) grads.push_back(c.grad(i));
  c.set_input_grad(0, c.Op("Pack", grads, {{"axis", c.AttrOr<int64_t>("axis", 0)}}));
  return absl::OkStatus();
}

// Of scalars, and of vectors on top of one another.
KnownInts PackInts(IntsContext& c) {
  if (c.node().AttrOr<int64_t>("axis", 0) != 0) return std::nullopt;
  return c.JoinInputs(0, c.node().num_inputs());
}

MILLRACE_OP(Pack)
    .Input("values: N * T")
    .Output("output: T")
    .Attr("N: int >= 1")
    .Attr("T: type")
    .Attr("axis: int = 0")
    .Shape(PackShape)
    .Gradient(PackGradient)
    .Ints(PackInts)
    .Summary("Stacks tensors along a new dimension.");
MILLRACE_KERNEL(Pack, kCpu, PackKernel);
MILLRACE_KERNEL(Pack, kCuda, PackKernel);
MILLRACE_HOST_KERNEL(Pack, kCuda, "T", DType::kInt32);

MILLRACE_OP(Unpack)
    .Input("value: T")
    .Output("output: num * T")
    .Attr("num: int >= 0")
    .Attr("T: type")
    .Attr("axis: int = 0")
    .Shape(UnpackShape)
    .Gradient(UnpackGradient)
    .Summary("Splits a tensor along a dimension, which is removed.");
MILLRACE_KERNEL(Unpack, kCpu, UnpackKernel);
MILLRACE_KERNEL(Unpack, kCuda, UnpackKernel);
MILLRACE_HOST_KERNEL(Unpack, kCuda, "T", DType::kInt32);

}  // namespace
}  // namespace millrace
