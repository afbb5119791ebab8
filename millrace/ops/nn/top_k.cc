// TopK and TopKV2: the k largest of each row; InTopK: whether a class is among them.
#include <cmath>
#include <numeric>

#include "millrace/graph/gradient.h"
#include "millrace/graph/host_memory.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/kernels/functors.h"
#include "millrace/ops/nn/blockwise.h"
#include "millrace/ops/nn/top_k_input.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

StatusOr<int64_t> KOf(ShapeContext& c) {
  if (c.node().is_type("TopK")) return c.Attr<int64_t>("k");
  std::vector<int64_t> values;
  if (c.ConstantInts(1, &values) && values.size() == 1) return values[0];
  return -1;
}

Status TopKShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(PartialShape out, c.WithRankAtLeast(0, 1));
  if (!c.node().is_type("TopK")) MR_RETURN_IF_ERROR(c.WithRank(1, 0).status());
  MR_ASSIGN_OR_RETURN(const int64_t k, KOf(c));
  if (out.known_rank()) {
    const int64_t width = out.dim(out.rank() - 1);
    if (k >= 0 && width >= 0 && width < k) {
      return InvalidArgument("k is ", k, ", but the rows of the input of shape ", out.ToString(), " have only ", width,
                             " elements");
    }
    out.set_dim(out.rank() - 1, k);
  }
  c.set_output(0, out);
  c.set_output(1, out);
  return absl::OkStatus();
}

Status InTopKShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape predictions, c.WithRank(0, 2));
  MR_ASSIGN_OR_RETURN(const PartialShape targets, c.WithRank(1, 1));
  MR_ASSIGN_OR_RETURN(const PartialShape rows,
                      PartialShape({predictions.dim(0)}).MergeWith(PartialShape({targets.dim(0)})));
  c.set_output(0, rows);
  return absl::OkStatus();
}

// The gradient is scattered to the positions of the values in the flattened input.
Status TopKGradient(GradientContext& c) {
  const Endpoint in_shape = c.Shape(c.input(0));
  const Endpoint indices = c.Cast(c.output(1), DType::kInt32);
  const auto last = [&](Endpoint shape) {
    return c.Op("StridedSlice", {shape, c.Ints({-1}), c.Ints({0}), c.Ints({1})},
                {{"shrink_axis_mask", 1}, {"end_mask", 1}});
  };
  const Endpoint width = last(in_shape), k = last(c.Shape(indices));
  const Endpoint minus_one = c.Scalar<int32_t>(-1);
  const Endpoint rows_by_k = c.Op("Reshape", {indices, c.Op("Pack", {minus_one, k})});
  const Endpoint rows =
      c.Op("StridedSlice", {c.Shape(rows_by_k), c.Ints({0}), c.Ints({1}), c.Ints({1})}, {{"shrink_axis_mask", 1}});
  const Endpoint starts = c.Op("Range", {c.Scalar<int32_t>(0), c.Mul(rows, width), width});
  const Endpoint flat = c.Add(rows_by_k, c.Op("ExpandDims", {starts, c.Scalar<int32_t>(-1)}));
  const Endpoint size = c.Op("Prod", {in_shape, c.Ints({0})}, {{"keep_dims", true}});
  const Endpoint scattered =
      c.Op("ScatterNd", {c.Reshape(flat, c.Ints({-1, 1})), c.Reshape(c.grad(0), c.Ints({-1})), size});
  c.set_input_grad(0, c.Reshape(scattered, in_shape));
  return absl::OkStatus();
}

#define MR_TOP_K_TYPES "T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64}"

MILLRACE_OP(TopK)
    .Summary("The k largest elements of each row and their indices.")
    .Input("input: T")
    .Output("values: T")
    .Output("indices: int32")
    .Attr("k: int >= 0")
    .Attr("sorted: bool = true")
    .Attr(MR_TOP_K_TYPES)
    .Shape(TopKShape)
    .Gradient(TopKGradient);

MILLRACE_OP(TopKV2)
    .Summary("The k largest elements of each row and their indices.")
    .Input("input: T")
    .Input("k: Tk")
    .Output("values: T")
    .Output("indices: index_type")
    .Attr("sorted: bool = true")
    .Attr(MR_TOP_K_TYPES)
    .Attr("Tk: {int16, int32, int64} = int32")
    .Attr("index_type: {int16, int32, int64} = int32")
    .Shape(TopKShape)
    .Gradient(TopKGradient);

MILLRACE_OP(InTopK)
    .Summary("True if the target class is among the k largest of its row.")
    .Input("predictions: float")
    .Input("targets: T")
    .Output("precision: bool")
    .Attr("k: int")
    .Attr("T: {int32, int64} = int32")
    .Shape(InTopKShape)
    .NotDifferentiable();

MILLRACE_OP(InTopKV2)
    .Summary("True if the target class is among the k largest of its row.")
    .Input("predictions: float")
    .Input("targets: T")
    .Input("k: T")
    .Output("precision: bool")
    .Attr("T: {int32, int64} = int32")
    .Shape(InTopKShape)
    .NotDifferentiable();

// An integer scalar of any of the index types.
StatusOr<int64_t> ScalarInt(const Tensor& t, absl::string_view name) {
  if (t.num_elements() != 1 || t.rank() > 1) {
    return InvalidArgument(name, " must be a scalar, but has shape ", t.shape().ToString());
  }
  int64_t value = 0;
  DispatchType(Types<int16_t, int32_t, int64_t>{}, t.dtype(),
               [&](auto tag) { value = t.scalar<typename decltype(tag)::type>(); });
  return value;
}

class TopKKernel : public Kernel {
 public:
  explicit TopKKernel(KernelInit& init) : k_(init, 1) {
    if (!DispatchType(RealTypes{}, init.input_type(0), [](auto) {})) FailDType(init, init.input_type(0));
  }

  Status Compute(KernelContext& ctx) override {
    const Tensor& x = ctx.input(0);
    MR_ASSIGN_OR_RETURN(const Shape out, k_.TopK(ctx));
    MR_ASSIGN_OR_RETURN(Tensor * values, ctx.AllocateOutput(0, out));
    MR_ASSIGN_OR_RETURN(Tensor * indices, ctx.AllocateOutput(1, out));
    if (out.num_elements() == 0) return absl::OkStatus();
    const int64_t width = x.dim(x.rank() - 1), k = out.dim(x.rank() - 1);
    DispatchType(RealTypes{}, x.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      DispatchType(Types<int16_t, int32_t, int64_t>{}, indices->dtype(), [&](auto index) {
        using I = typename decltype(index)::type;
        Rows<T, I>(ctx, x.data<T>(), x.num_elements() / width, width, k, values->data<T>(), indices->data<I>());
      });
    });
    return absl::OkStatus();
  }

 private:
  template <typename T>
  static bool Before(const T* x, int32_t a, int32_t b) {
    return TopKBeforeFn()(static_cast<ComputeType<T>>(x[a]), a, static_cast<ComputeType<T>>(x[b]), b);
  }

  template <typename T, typename I>
  static void Rows(KernelContext& ctx, const T* x, int64_t rows, int64_t width, int64_t k, T* values, I* indices) {
    ctx.ParallelFor(rows, std::max<int64_t>(1, 4096 / width), [&](int64_t begin, int64_t end) {
      std::vector<int32_t> order(width);
      for (int64_t r = begin; r < end; ++r) {
        const T* row = x + r * width;
        std::iota(order.begin(), order.end(), 0);
        std::partial_sort(order.begin(), order.begin() + k, order.end(),
                          [row](int32_t a, int32_t b) { return Before(row, a, b); });
        for (int64_t i = 0; i < k; ++i) {
          values[r * k + i] = row[order[i]];
          indices[r * k + i] = static_cast<I>(order[i]);
        }
      }
    });
  }

  const TopKInput k_;
};

class InTopKKernel : public Kernel {
 public:
  explicit InTopKKernel(KernelInit& init) : k_(init, 2) {}

  Status Compute(KernelContext& ctx) override {
    const Tensor &predictions = ctx.input(0), &targets = ctx.input(1);
    MR_ASSIGN_OR_RETURN(const int64_t k, k_.InTopK(ctx));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, targets.shape()));
    const int64_t width = predictions.dim(1);
    bool* in_top = out->data<bool>();
    DispatchType(IndexTypes{}, targets.dtype(), [&](auto tag) {
      const auto* target = targets.data<typename decltype(tag)::type>();
      const float* row = predictions.data<float>();
      for (int64_t r = 0; r < targets.dim(0); ++r, row += width) {
        in_top[r] = InTop(row, width, target[r], k);
      }
    });
    return absl::OkStatus();
  }

 private:
  // False for a class that does not exist and for a row that cannot be ordered.
  static bool InTop(const float* row, int64_t width, int64_t target, int64_t k) {
    if (target < 0 || target >= width || !std::isfinite(row[target])) return false;
    int64_t better = 0;
    for (int64_t i = 0; i < width; ++i) {
      if (!std::isfinite(row[i])) return false;
      better += row[i] > row[target];
    }
    return better < k;
  }

  const TopKInput k_;
};

MILLRACE_KERNEL(TopK, kCpu, TopKKernel);
MILLRACE_KERNEL(TopKV2, kCpu, TopKKernel);
MILLRACE_KERNEL(InTopK, kCpu, InTopKKernel);
MILLRACE_KERNEL(InTopKV2, kCpu, InTopKKernel);
MILLRACE_HOST_MEMORY(TopKV2, "GPU", "k");
MILLRACE_HOST_MEMORY(InTopKV2, "GPU", "k");

}  // namespace

TopKInput::TopKInput(KernelInit& init, int input) : input_(init.node().FindAttr("k") != nullptr ? -1 : input) {
  if (input_ < 0) init.Attr("k", &k_);
}

StatusOr<int64_t> TopKInput::K(const KernelContext& ctx) const {
  if (input_ < 0) return k_;
  return ScalarInt(ctx.input(input_), "k");
}

StatusOr<Shape> TopKInput::TopK(const KernelContext& ctx) const {
  const Shape& x = ctx.input(0).shape();
  MR_ASSIGN_OR_RETURN(const int64_t k, K(ctx));
  if (k < 0) return InvalidArgument("Need k >= 0, got ", k);
  if (x.rank() < 1 || x.dim(x.rank() - 1) < k) {
    return InvalidArgument("input must have last dimension >= k = ", k, ", that is, must have at least k columns, but ",
                           "it has shape ", x.ToString());
  }
  const int64_t width = x.dim(x.rank() - 1);
  Shape out = x;
  out.set_dim(x.rank() - 1, k);
  if (out.num_elements() > 0 && ctx.output_type(1) == DType::kInt16 && width > std::numeric_limits<int16_t>::max()) {
    return InvalidArgument("rows of ", width, " elements are too long for indices of int16");
  }
  return out;
}

StatusOr<int64_t> TopKInput::InTopK(const KernelContext& ctx) const {
  const Shape &predictions = ctx.input(0).shape(), &targets = ctx.input(1).shape();
  MR_ASSIGN_OR_RETURN(const int64_t k, K(ctx));
  if (predictions.rank() != 2 || targets.rank() != 1 || predictions.dim(0) != targets.dim(0)) {
    return InvalidArgument("predictions must be a matrix and targets a vector of as many rows, but have shapes ",
                           predictions.ToString(), " and ", targets.ToString());
  }
  return k;
}

}  // namespace millrace
