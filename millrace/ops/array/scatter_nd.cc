// ScatterNd and the TensorScatter ops: slices written or combined into a tensor at coordinates.
#include <algorithm>
#include <cstring>

#include "millrace/graph/gradient.h"
#include "millrace/graph/host_memory.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/array/int_list.h"
#include "millrace/ops/array/nd_index.h"
#include "millrace/ops/array/partial_dims.h"
#include "millrace/ops/kernels/functors.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/tensor/copy_elements.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

struct Assign {
  template <typename T>
  static void Do(T& a, const T& b) {
    a = b;
  }
};
struct Add {
  template <typename T>
  static void Do(T& a, const T& b) {
    a = static_cast<T>(a + b);
  }
  static void Do(bool& a, const bool& b) { a = a || b; }
};
struct Sub {
  template <typename T>
  static void Do(T& a, const T& b) {
    a = static_cast<T>(a - b);
  }
};
struct Max {
  template <typename T>
  static void Do(T& a, const T& b) {
    a = GreaterOfFn()(a, b);
  }
};
struct Min {
  template <typename T>
  static void Do(T& a, const T& b) {
    a = LesserOfFn()(a, b);
  }
};

// Slices of at least this width are split among threads by columns, so that updates of a repeated row are applied in
// order.
constexpr int64_t kWide = 1 << 14;

template <typename Combine, typename T>
void ScatterRows(KernelContext& ctx, absl::Span<const int64_t> offsets, int64_t n, const T* updates, T* out) {
  ctx.ParallelFor(n, kWide, [&](int64_t begin, int64_t end) {
    for (size_t i = 0; i < offsets.size(); ++i) {
      if (offsets[i] < 0) continue;
      T* to = out + offsets[i];
      const T* from = updates + static_cast<int64_t>(i) * n;
      for (int64_t j = begin; j < end; ++j) Combine::Do(to[j], from[j]);
    }
  });
}

using AddTypes = JoinTypes<NumberTypes, Types<bool, std::string>>::type;
template <typename Combine>
struct TypesOf {
  using type = NumberTypes;
};
template <>
struct TypesOf<Add> {
  using type = AddTypes;
};
template <>
struct TypesOf<Max> {
  using type = RealTypes;
};
template <>
struct TypesOf<Min> {
  using type = RealTypes;
};

template <typename Combine>
Status Scatter(KernelContext& ctx, const NdIndex& nd, const Tensor& updates, Tensor* out, bool ignore_bad) {
  MR_ASSIGN_OR_RETURN(const NdIndex::Offsets offsets, nd.Resolve(ignore_bad, "shape"));
  const auto run = [&](auto tag) {
    using T = typename decltype(tag)::type;
    ScatterRows<Combine, T>(ctx, offsets, nd.slice(), updates.raw<T>(), out->raw<T>());
  };
  bool known;
  if constexpr (std::is_same_v<Combine, Assign>) {
    known = DispatchMove(out->dtype(), run);
  } else {
    known = DispatchType(typename TypesOf<Combine>::type(), out->dtype(), run);
  }
  return known ? absl::OkStatus() : InvalidArgument("this scatter does not take ", out->dtype());
}

class ScatterNdKernel : public Kernel {
 public:
  explicit ScatterNdKernel(KernelInit& init) {
    auto ignore = IgnoresBadIndices(init.node());
    if (!ignore.ok()) init.Fail(ignore.status());
    ignore_bad_ = ignore.ok() && *ignore;
  }
  Status Compute(KernelContext& ctx) override {
    const Tensor& indices = ctx.input(0);
    const Tensor& updates = ctx.input(1);
    MR_ASSIGN_OR_RETURN(const IntList dims, ReadIntVector(ctx.input(2), "shape"));
    MR_ASSIGN_OR_RETURN(const Shape shape, Shape::Make(dims));
    MR_ASSIGN_OR_RETURN(const NdIndex nd, NdIndex::Make(indices, shape));
    MR_RETURN_IF_ERROR(nd.CheckUpdates(updates.shape()));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, shape));
    if (IsPlain(out->dtype())) std::memset(out->raw_data(), 0, out->TotalBytes());
    return Scatter<Add>(ctx, nd, updates, out, ignore_bad_);
  }

 private:
  bool ignore_bad_ = false;
};

template <typename Combine>
class TensorScatterKernel : public Kernel {
 public:
  explicit TensorScatterKernel(KernelInit& init) {
    auto ignore = IgnoresBadIndices(init.node());
    if (!ignore.ok()) init.Fail(ignore.status());
    ignore_bad_ = ignore.ok() && *ignore;
  }
  Status Compute(KernelContext& ctx) override {
    const Shape shape = ctx.input(0).shape();
    const void* before = ctx.input(0).raw_data();
    const Tensor& indices = ctx.input(1);
    const Tensor& updates = ctx.input(2);
    MR_ASSIGN_OR_RETURN(const NdIndex nd, NdIndex::Make(indices, shape));
    MR_RETURN_IF_ERROR(nd.CheckUpdates(updates.shape()));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.ForwardOrAllocateOutput({0}, 0, shape));
    if (out->raw_data() != before) {
      CopyElements(out->dtype(), before, 0, out->raw_data(), 0, shape.num_elements());
    }
    return Scatter<Combine>(ctx, nd, updates, out, ignore_bad_);
  }

 private:
  bool ignore_bad_ = false;
};

Status ScatterNdShape(ShapeContext& c) {
  MR_RETURN_IF_ERROR(c.WithRankAtLeast(0, 1).status());
  MR_RETURN_IF_ERROR(c.WithRank(2, 1).status());
  MR_ASSIGN_OR_RETURN(PartialShape shape, c.ShapeFromInput(2));
  c.set_output(0, shape);
  return absl::OkStatus();
}

Status ScatterNdGradient(GradientContext& c) {
  c.set_input_grad(1, c.Op("GatherNd", {c.grad(), c.input(0)}));
  return absl::OkStatus();
}

Status TensorScatterAddGradient(GradientContext& c) {
  c.set_input_grad(0, c.grad());
  c.set_input_grad(2, c.Op("GatherNd", {c.grad(), c.input(1)}));
  return absl::OkStatus();
}

Status TensorScatterSubGradient(GradientContext& c) {
  c.set_input_grad(0, c.grad());
  c.set_input_grad(2, c.Neg(c.Op("GatherNd", {c.grad(), c.input(1)})));
  return absl::OkStatus();
}

Status TensorScatterUpdateGradient(GradientContext& c) {
  c.set_input_grad(0, c.Op("TensorScatterUpdate", {c.grad(), c.input(1), c.ZerosLike(c.input(2))}));
  c.set_input_grad(2, c.Op("GatherNd", {c.grad(), c.input(1)}));
  return absl::OkStatus();
}

// The gradient is divided evenly among the elements that equal the result.
Status TensorScatterMinMaxGradient(GradientContext& c) {
  const Endpoint x = c.input(0), indices = c.input(1), updates = c.input(2), out = c.output(0);
  const DType dtype = x.dtype();
  const Endpoint from_x = c.Cast(c.Op("Equal", {x, out}), dtype);
  const Endpoint at = c.Op("GatherNd", {out, indices});
  const Endpoint from_updates = c.Cast(c.Op("Equal", {updates, at}), dtype);
  const Endpoint shape = c.Op("Shape", {x}, {{"out_type", indices.dtype()}});
  const Endpoint ties = c.Add(from_x, c.Op("ScatterNd", {indices, from_updates, shape}));
  const Endpoint share = c.Div(c.grad(), ties);
  c.set_input_grad(0, c.Mul(share, from_x));
  c.set_input_grad(2, c.Mul(c.Op("GatherNd", {share, indices}), from_updates));
  return absl::OkStatus();
}

MILLRACE_OP(ScatterNd)
    .Input("indices: Tindices")
    .Input("updates: T")
    .Input("shape: Tindices")
    .Output("output: T")
    .Attr("T: type")
    .Attr("Tindices: {int16, int32, int64}")
    .Attr("bad_indices_policy: string = ''")
    .Shape(ScatterNdShape)
    .Gradient(ScatterNdGradient)
    .Trait(OpTrait::kUnboundedOutput)
    .Summary("Scatters slices into a tensor of zeros.");
MILLRACE_KERNEL(ScatterNd, kCpu, ScatterNdKernel);
MILLRACE_HOST_MEMORY(ScatterNd, "GPU", "shape");

MILLRACE_OP(ScatterNdNonAliasingAdd)
    .Input("input: T")
    .Input("indices: Tindices")
    .Input("updates: T")
    .Output("output: T")
    .Attr(
        "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, "
        "qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64, bool}")
    .Attr("Tindices: {int32, int64}")
    .Attr("bad_indices_policy: string = ''")
    .Shape(UnchangedShape)
    .Gradient(TensorScatterAddGradient)
    .Summary("Adds slices to a copy of a tensor, by coordinates.");
MILLRACE_KERNEL(ScatterNdNonAliasingAdd, kCpu, TensorScatterKernel<Add>);

MILLRACE_OP(TensorScatterAdd)
    .Input("tensor: T")
    .Input("indices: Tindices")
    .Input("updates: T")
    .Output("output: T")
    .Attr("T: type")
    .Attr("Tindices: {int32, int64}")
    .Attr("bad_indices_policy: string = ''")
    .Shape(UnchangedShape)
    .Gradient(TensorScatterAddGradient)
    .Summary("A copy of a tensor with slices added, by coordinates.");
MILLRACE_KERNEL(TensorScatterAdd, kCpu, TensorScatterKernel<Add>);

MILLRACE_OP(TensorScatterSub)
    .Input("tensor: T")
    .Input("indices: Tindices")
    .Input("updates: T")
    .Output("output: T")
    .Attr("T: type")
    .Attr("Tindices: {int32, int64}")
    .Attr("bad_indices_policy: string = ''")
    .Shape(UnchangedShape)
    .Gradient(TensorScatterSubGradient)
    .Summary("A copy of a tensor with slices subtracted, by coordinates.");
MILLRACE_KERNEL(TensorScatterSub, kCpu, TensorScatterKernel<Sub>);

MILLRACE_OP(TensorScatterUpdate)
    .Input("tensor: T")
    .Input("indices: Tindices")
    .Input("updates: T")
    .Output("output: T")
    .Attr("T: type")
    .Attr("Tindices: {int16, int32, int64, uint16}")
    .Attr("bad_indices_policy: string = ''")
    .Shape(UnchangedShape)
    .Gradient(TensorScatterUpdateGradient)
    .Summary("A copy of a tensor with slices replaced, by coordinates.");
MILLRACE_KERNEL(TensorScatterUpdate, kCpu, TensorScatterKernel<Assign>);

MILLRACE_OP(TensorScatterMax)
    .Input("tensor: T")
    .Input("indices: Tindices")
    .Input("updates: T")
    .Output("output: T")
    .Attr("T: type")
    .Attr("Tindices: {int32, int64}")
    .Attr("bad_indices_policy: string = ''")
    .Shape(UnchangedShape)
    .Gradient(TensorScatterMinMaxGradient)
    .Summary("A copy of a tensor with the maximum of slices, by coordinates.");
MILLRACE_KERNEL(TensorScatterMax, kCpu, TensorScatterKernel<Max>);

MILLRACE_OP(TensorScatterMin)
    .Input("tensor: T")
    .Input("indices: Tindices")
    .Input("updates: T")
    .Output("output: T")
    .Attr("T: type")
    .Attr("Tindices: {int32, int64}")
    .Attr("bad_indices_policy: string = ''")
    .Shape(UnchangedShape)
    .Gradient(TensorScatterMinMaxGradient)
    .Summary("A copy of a tensor with the minimum of slices, by coordinates.");
MILLRACE_KERNEL(TensorScatterMin, kCpu, TensorScatterKernel<Min>);

}  // namespace
}  // namespace millrace
