// Tile repeats a tensor along its dimensions; TileGrad sums the copies.
#include <cstring>

#include "millrace/graph/gradient.h"
#include "millrace/graph/host_memory.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/array/int_list.h"
#include "millrace/ops/array/partial_dims.h"
#include "millrace/ops/kernels/strided_copy.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

StatusOr<IntList> ReadMultiples(const Tensor& tensor, int rank) {
  MR_ASSIGN_OR_RETURN(IntList multiples, ReadIntVector(tensor, "multiples"));
  if (static_cast<int>(multiples.size()) != rank) {
    return InvalidArgument("Expected multiples argument to be a vector of length ", rank, " but got length ",
                           multiples.size());
  }
  for (size_t i = 0; i < multiples.size(); ++i) {
    if (multiples[i] < 0) {
      return InvalidArgument("Expected multiples[", i, "] >= 0, but got ", multiples[i]);
    }
  }
  return multiples;
}

class TileKernel : public Kernel {
 public:
  explicit TileKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    const Tensor& input = ctx.input(0);
    MR_ASSIGN_OR_RETURN(const IntList multiples, ReadMultiples(ctx.input(1), input.rank()));
    Shape::Dims dims;
    bool same = true;
    for (int i = 0; i < input.rank(); ++i) {
      int64_t n;
      if (__builtin_mul_overflow(input.dim(i), multiples[i], &n)) {
        return InvalidArgument("dimension ", i, " of ", input.dim(i), " times ", multiples[i], " is too large");
      }
      dims.push_back(n);
      same = same && multiples[i] == 1;
    }
    MR_ASSIGN_OR_RETURN(const Shape shape, Shape::Make(dims));
    if (same) {
      ctx.SetOutput(0, input);
      return absl::OkStatus();
    }
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateDeviceOutput(0, shape));
    const auto from = RowMajorStrides(input.shape().dims());
    const auto to = RowMajorStrides(shape.dims());
    CopyBox box;
    for (int i = 0; i < input.rank(); ++i) {
      box.Add(multiples[i], 0, to[i] * input.dim(i));
      box.Add(input.dim(i), from[i], to[i]);
    }
    return StridedCopy(ctx, std::move(box), input, 0, out, 0);
  }
};

Status TileShape(ShapeContext& c) {
  const PartialShape& in = c.input(0);
  MR_ASSIGN_OR_RETURN(PartialShape list, c.WithRank(1, 1));
  const int64_t rank = in.known_rank() ? in.rank() : list.dim(0);
  if (rank > Shape::kMaxRank || (rank >= 0 && list.dim(0) >= 0 && rank != list.dim(0))) {
    return InvalidArgument("multiples has ", list.dim(0), " elements for a tensor of rank ", rank);
  }
  if (rank < 0) return absl::OkStatus();
  PartialShape out = PartialShape::UnknownOfRank(static_cast<int>(rank));
  const Tensor* value = c.constant(1);
  if (in.known_rank() && value != nullptr) {
    MR_ASSIGN_OR_RETURN(const IntList multiples, ReadMultiples(*value, in.rank()));
    for (int i = 0; i < in.rank(); ++i) out.set_dim(i, MulDims(in.dim(i), multiples[i]));
  }
  c.set_output(0, out);
  return absl::OkStatus();
}

// Sums the gradient, viewed as [m0, d0, m1, d1, ...], over the multiples m.
Status TileGradient(GradientContext& c) {
  const Endpoint multiples = c.input(1);
  const Endpoint shape = c.Op("Shape", {c.input(0)}, {{"out_type", multiples.dtype()}});
  const Endpoint pairs = c.Op("Pack", {multiples, shape}, {{"axis", 1}});
  const Endpoint split = c.Reshape(pairs, c.Ints({-1}));
  const Endpoint axes = c.Op("Range", {c.Scalar<int32_t>(0), c.Op("Size", {split}), c.Scalar<int32_t>(2)});
  const Endpoint sum = c.Op("Sum", {c.Reshape(c.grad(), split), axes});
  // The sum already has this shape; the Reshape makes it statically known.
  c.set_input_grad(0, c.Reshape(sum, shape));
  return absl::OkStatus();
}

// Adds tile by tile to `out`, in order.
template <typename T>
void SumTiles(const T* from, T* to, const Shape& in, const Shape& out) {
  std::fill_n(to, out.num_elements(), T{});
  const auto strides = RowMajorStrides(out.dims());
  const int64_t n = in.num_elements();
  const int rank = in.rank();
  IntList at(rank, 0);
  for (int64_t i = 0; i < n; ++i) {
    int64_t target = 0;
    for (int d = 0; d < rank; ++d) target += at[d] % out.dim(d) * strides[d];
    to[target] = static_cast<T>(to[target] + from[i]);
    for (int d = rank - 1; d >= 0 && ++at[d] == in.dim(d); --d) at[d] = 0;
  }
}

class TileGradKernel : public Kernel {
 public:
  explicit TileGradKernel(KernelInit& init) {
    const bool known = DispatchType(NumberTypes(), init.input_type(0), [](auto) {});
    if (!known) FailDType(init, init.input_type(0));
  }
  Status Compute(KernelContext& ctx) override {
    const Tensor& input = ctx.input(0);
    MR_ASSIGN_OR_RETURN(const IntList multiples, ReadMultiples(ctx.input(1), input.rank()));
    Shape shape = input.shape();
    for (int i = 0; i < input.rank(); ++i) {
      if (multiples[i] == 0 || input.dim(i) % multiples[i] != 0) {
        return InvalidArgument("Expected input_dim[", i, "] to be divisible by multiples[", i, "], but ", input.dim(i),
                               " % ", multiples[i], " != 0");
      }
      shape.set_dim(i, input.dim(i) / multiples[i]);
    }
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, shape));
    DispatchType(NumberTypes(), input.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      SumTiles(input.data<T>(), out->data<T>(), input.shape(), shape);
    });
    return absl::OkStatus();
  }
};

MILLRACE_OP(Tile)
    .Input("input: T")
    .Input("multiples: Tmultiples")
    .Output("output: T")
    .Attr("T: type")
    .Attr("Tmultiples: {int32, int64} = int32")
    .Shape(TileShape)
    .Gradient(TileGradient)
    .Trait(OpTrait::kUnboundedOutput)
    .Summary("Repeats a tensor along its dimensions.");
MILLRACE_KERNEL(Tile, kCpu, TileKernel);
MILLRACE_KERNEL(Tile, kCuda, TileKernel);
MILLRACE_HOST_MEMORY(Tile, "GPU", "multiples");
MILLRACE_HOST_KERNEL(Tile, kCuda, "T", DType::kInt32);

MILLRACE_OP(TileGrad)
    .Input("input: T")
    .Input("multiples: int32")
    .Output("output: T")
    .Attr("T: type")
    .Shape(UnknownShape)
    .NotDifferentiable()
    .Summary("The gradient of Tile.");
MILLRACE_KERNEL(TileGrad, kCpu, TileGradKernel);

}  // namespace
}  // namespace millrace
