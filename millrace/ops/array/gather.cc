// Gather and GatherV2: slices of a tensor chosen by index along one dimension.
#include <cstring>

#include "millrace/graph/constant_ints.h"
#include "millrace/graph/gradient.h"
#include "millrace/graph/host_memory.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/array/constant_value.h"
#include "millrace/ops/array/gather_dims.h"
#include "millrace/ops/array/int_list.h"
#include "millrace/ops/array/partial_dims.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

constexpr int64_t kPieceBytes = 1 << 17;

template <typename T, typename Index>
void GatherSlices(KernelContext& ctx, const GatherDims& d, const T* params, const Index* indices, T* out) {
  const int64_t grain =
      std::max<int64_t>(1, kPieceBytes / std::max<int64_t>(1, d.inner * static_cast<int64_t>(sizeof(T))));
  ctx.ParallelFor(d.batch * d.outer * d.count, grain, [&](int64_t begin, int64_t end) {
    int64_t i = begin % d.count;
    int64_t plane = begin / d.count;
    const Index* row = indices + plane / d.outer * d.count;
    for (int64_t at = begin; at < end; ++at) {
      const T* from = params + (plane * d.axis + row[i]) * d.inner;
      if (d.inner == 1) {
        out[at] = *from;
      } else if constexpr (std::is_trivially_copyable_v<T>) {
        std::memcpy(out + at * d.inner, from, static_cast<size_t>(d.inner) * sizeof(T));
      } else {
        std::copy_n(from, d.inner, out + at * d.inner);
      }
      if (++i == d.count) {
        i = 0;
        ++plane;
        row = indices + plane / d.outer * d.count;
      }
    }
  });
}

StatusOr<int> CheckBatchDims(const Shape& params, const Shape& indices, int64_t batch_dims, int axis) {
  const int64_t n = batch_dims < 0 ? batch_dims + indices.rank() : batch_dims;
  if (n < 0 || n > indices.rank()) {
    return InvalidArgument("Expected batch_dims in the range [", -indices.rank(), ", ", indices.rank(), "], but got ",
                           batch_dims);
  }
  if (n > axis) {
    return InvalidArgument("batch_dims (", n, ") must be less than or equal to axis (", axis, ").");
  }
  for (int i = 0; i < n; ++i) {
    if (params.dim(i) != indices.dim(i)) {
      return InvalidArgument("params.shape[", i, "]: ", params.dim(i), " should be equal to indices.shape[", i,
                             "]: ", indices.dim(i));
    }
  }
  return static_cast<int>(n);
}

// The coordinates of element `i` of a tensor: "1,2".
std::string Coordinates(const Shape& shape, int64_t i) {
  std::string text;
  for (int d = shape.rank() - 1; d >= 0; --d) {
    text = absl::StrCat(i % shape.dim(d), text.empty() ? "" : ",", text);
    i /= shape.dim(d);
  }
  return text;
}

template <typename Index>
Status CheckIndices(const Tensor& indices, int64_t limit) {
  const Index* p = indices.data<Index>();
  const int64_t n = indices.num_elements();
  for (int64_t i = 0; i < n; ++i) {
    if (static_cast<uint64_t>(static_cast<int64_t>(p[i])) >= static_cast<uint64_t>(limit)) {
      return InvalidArgument("indices[", Coordinates(indices.shape(), i), "] = ", static_cast<int64_t>(p[i]),
                             " is not in [0, ", limit, ")");
    }
  }
  return absl::OkStatus();
}

class GatherKernel : public Kernel {
 public:
  explicit GatherKernel(KernelInit& init) {
    if (init.node().is_type("GatherV2")) init.Attr("batch_dims", &batch_dims_);
  }
  Status Compute(KernelContext& ctx) override {
    const Tensor &params = ctx.input(0), &indices = ctx.input(1);
    MR_ASSIGN_OR_RETURN(const GatherDims d, DimsOfGather(ctx, batch_dims_));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, d.shape));
    Status status = InvalidArgument("indices must be int16, int32 or int64");
    DispatchType(Types<int32_t, int64_t, int16_t>(), indices.dtype(), [&](auto index_tag) {
      using Index = typename decltype(index_tag)::type;
      status = CheckIndices<Index>(indices, d.axis);
      if (!status.ok() || d.shape.num_elements() == 0) return;
      DispatchMove(params.dtype(), [&](auto tag) {
        using T = typename decltype(tag)::type;
        GatherSlices(ctx, d, params.raw<T>(), indices.data<Index>(), out->raw<T>());
      });
    });
    return status;
  }

 private:
  int64_t batch_dims_ = 0;
};

Status GatherShape(ShapeContext& c) {
  const PartialShape &params = c.input(0), &indices = c.input(1);
  MR_RETURN_IF_ERROR(c.WithRankAtLeast(0, 1).status());
  int64_t axis = 0;
  int64_t batch_dims = 0;
  if (c.num_inputs() > 2) {
    const Tensor* value = c.constant(2);
    if (value == nullptr) {
      if (params.known_rank() && indices.known_rank()) {
        batch_dims = c.node().AttrOr<int64_t>("batch_dims", 0);
        if (batch_dims < 0) batch_dims += indices.rank();
        const int64_t rank = params.rank() + indices.rank() - 1 - batch_dims;
        if (rank >= 0) c.set_output(0, PartialShape::UnknownOfRank(static_cast<int>(rank)));
      }
      return absl::OkStatus();
    }
    MR_ASSIGN_OR_RETURN(axis, ReadInt(*value, "axis"));
    MR_ASSIGN_OR_RETURN(batch_dims, c.Attr<int64_t>("batch_dims"));
  }
  if (!params.known_rank() || !indices.known_rank()) return absl::OkStatus();
  MR_ASSIGN_OR_RETURN(const int at, ReadAxis(axis, params.rank(), "axis"));
  if (batch_dims < 0) batch_dims += indices.rank();
  if (batch_dims < 0 || batch_dims > indices.rank() || batch_dims > at) {
    return InvalidArgument("batch_dims (", batch_dims, ") does not fit axis ", at, " and indices of rank ",
                           indices.rank());
  }
  const int batch = static_cast<int>(batch_dims);
  PartialShape out = PartialShape::Scalar();
  for (int i = 0; i < at; ++i) {
    int64_t dim = params.dim(i);
    if (i < batch) {
      MR_ASSIGN_OR_RETURN(dim, MergeDims(dim, indices.dim(i)));
    }
    out.AddDim(dim);
  }
  out = JoinShapes(out, SubShape(indices, batch, indices.rank()));
  c.set_output(0, JoinShapes(out, SubShape(params, at + 1, params.rank())));
  return absl::OkStatus();
}

// For rows of params the gradient is IndexedSlices of the output gradient and the indices.
Status RowGradient(GradientContext& c) {
  const Endpoint params = c.input(0), indices = c.input(1);
  const Endpoint shape = c.Shape(params);
  const Endpoint count = c.Op("Size", {indices});
  const Endpoint tail = c.Op("StridedSlice", {shape, c.Ints({1}), c.Ints({0}), c.Ints({1})}, {{"end_mask", 1}});
  const Endpoint rows = c.Op("Pack", {count});
  const Endpoint values_shape = c.Op("ConcatV2", {rows, tail, c.Scalar<int32_t>(0)});
  const Endpoint flat = c.Reshape(indices, c.Ints({-1}));
  c.set_input_grad(0, Grad::Slices(c.Reshape(c.grad(), values_shape), flat, shape));
  return absl::OkStatus();
}

// For any axis and batch_dims: with params viewed as [batch, outer, axis, inner] and the gradient as [batch, outer,
// count, inner], the slices of each index are summed by UnsortedSegmentSum.
Status AxisGradient(GradientContext& c, Endpoint axis, int64_t batch_dims) {
  const Endpoint params = c.input(0), indices = c.input(1);
  const Endpoint zero = c.Ints({0}), one = c.Ints({1});
  const Endpoint shape = c.Shape(params);
  const Endpoint rank = c.Rank(params);
  const Endpoint at = c.Op("FloorMod", {c.Cast(axis, DType::kInt32), rank});
  const auto product = [&](Endpoint begin, Endpoint size) {
    const Endpoint part = c.Op("Slice", {shape, c.Reshape(begin, one), c.Reshape(size, one)});
    return c.Op("Prod", {part, zero});
  };
  const Endpoint zero_scalar = c.Scalar<int32_t>(0), one_scalar = c.Scalar<int32_t>(1);
  const Endpoint lead = c.Scalar<int32_t>(static_cast<int32_t>(batch_dims));
  const Endpoint batch = product(zero_scalar, lead);
  const Endpoint outer = product(lead, c.Sub(at, lead));
  const Endpoint length = product(at, one_scalar);
  const Endpoint inner = product(c.Add(at, one_scalar), c.Scalar<int32_t>(-1));

  const Endpoint count = c.Op("FloorDiv", {c.Op("Size", {indices}), c.Op("Maximum", {batch, one_scalar})});
  const Endpoint ids2 = c.Reshape(indices, c.Op("Pack", {batch, count}));
  const DType index = indices.dtype() == DType::kInt64 ? DType::kInt64 : DType::kInt32;
  const Endpoint starts = c.Mul(c.Op("Range", {zero_scalar, batch, one_scalar}), length);
  const Endpoint offsets = c.Cast(c.Op("ExpandDims", {starts, one_scalar}), index);
  const Endpoint ids = c.Reshape(c.Add(c.Cast(ids2, index), offsets), c.Ints({-1}));

  const Endpoint grad4 = c.Reshape(c.grad(), c.Op("Pack", {batch, outer, count, inner}));
  const Endpoint swap = c.Ints({0, 2, 1, 3});
  const Endpoint by_index = c.Op("Transpose", {grad4, swap});
  const Endpoint values = c.Reshape(by_index, c.Op("Pack", {c.Mul(batch, count), outer, inner}));
  const Endpoint sums = c.Op("UnsortedSegmentSum", {values, ids, c.Mul(batch, length)});
  const Endpoint sums4 = c.Reshape(sums, c.Op("Pack", {batch, length, outer, inner}));
  c.set_input_grad(0, c.Reshape(c.Op("Transpose", {sums4, swap}), shape));
  return absl::OkStatus();
}

Status GatherGradient(GradientContext& c) { return RowGradient(c); }

Status GatherV2Gradient(GradientContext& c) {
  int64_t batch_dims = c.AttrOr<int64_t>("batch_dims", 0);
  if (batch_dims < 0) {
    if (!c.input(1).shape().known_rank()) {
      return InvalidArgument("negative batch_dims need indices of known rank");
    }
    batch_dims += c.input(1).shape().rank();
  }
  if (batch_dims == 0 && ConstantInt(c.input(2)) == 0) return RowGradient(c);
  return AxisGradient(c, c.input(2), batch_dims);
}

// Of a vector.
KnownInts GatherInts(IntsContext& c) {
  if (c.input_shape(0).rank() != 1) return std::nullopt;
  const KnownInts x = c.Input(0), indices = c.Input(1);
  if (!x || !indices) return std::nullopt;
  std::vector<int64_t> result;
  for (const int64_t i : *indices) {
    if (i != kUnknownInt && (i < 0 || i >= static_cast<int64_t>(x->size()))) return std::nullopt;
    result.push_back(i == kUnknownInt ? kUnknownInt : (*x)[static_cast<size_t>(i)]);
  }
  return result;
}

MILLRACE_OP(Gather)
    .Input("params: Tparams")
    .Input("indices: Tindices")
    .Output("output: Tparams")
    .Attr("validate_indices: bool = true")
    .Attr("Tparams: type")
    .Attr("Tindices: {int32, int64}")
    .Shape(GatherShape)
    .Gradient(GatherGradient)
    .Ints(GatherInts)
    .Summary("Rows of a tensor, selected by index.");
MILLRACE_KERNEL(Gather, kCpu, GatherKernel);

MILLRACE_OP(GatherV2)
    .Input("params: Tparams")
    .Input("indices: Tindices")
    .Input("axis: Taxis")
    .Output("output: Tparams")
    .Attr("batch_dims: int = 0")
    .Attr("Tparams: type")
    .Attr("Tindices: {int16, int32, int64}")
    .Attr("Taxis: {int32, int64}")
    .Shape(GatherShape)
    .Gradient(GatherV2Gradient)
    .Ints(GatherInts)
    .Summary("Slices of a tensor along an axis, selected by index.");
MILLRACE_KERNEL(GatherV2, kCpu, GatherKernel);
MILLRACE_HOST_MEMORY(GatherV2, "GPU", "axis");
MILLRACE_HOST_KERNEL(GatherV2, kCuda, "Tparams", DType::kInt32);

}  // namespace

StatusOr<GatherDims> DimsOfGather(const KernelContext& ctx, int64_t batch_dims) {
  const Shape &params = ctx.input(0).shape(), &indices = ctx.input(1).shape();
  if (params.rank() < 1) return InvalidArgument("params must be at least 1 dimensional");
  int axis = 0;
  if (ctx.num_inputs() > 2) {
    MR_ASSIGN_OR_RETURN(const int64_t wanted, ReadInt(ctx.input(2), "axis"));
    MR_ASSIGN_OR_RETURN(axis, ReadAxis(wanted, params.rank(), "axis"));
  }
  MR_ASSIGN_OR_RETURN(const int batch, CheckBatchDims(params, indices, batch_dims, axis));
  Shape::Dims dims;
  for (int i = 0; i < axis; ++i) dims.push_back(params.dim(i));
  for (int i = batch; i < indices.rank(); ++i) dims.push_back(indices.dim(i));
  for (int i = axis + 1; i < params.rank(); ++i) dims.push_back(params.dim(i));
  MR_ASSIGN_OR_RETURN(const Shape shape, Shape::Make(dims));
  return GatherDims{params.Product(0, batch),
                    params.Product(batch, axis),
                    params.dim(axis),
                    params.Product(axis + 1, params.rank()),
                    indices.Product(batch, indices.rank()),
                    shape};
}

}  // namespace millrace
