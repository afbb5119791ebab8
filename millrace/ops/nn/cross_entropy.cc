// Cross entropy of softmax(features) with labels: dense distributions or the index of a class.
#include <cmath>

#include "millrace/graph/gradient.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/nn/blockwise.h"
#include "millrace/ops/nn/softmax_rows.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

Status DenseShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape out, BroadcastShapes(c.input(0), c.input(1)));
  if (!out.known_rank()) {
    c.set_output(0, {-1});
    c.set_output(1, {-1, -1});
    return absl::OkStatus();
  }
  if (out.rank() != 2) {
    return InvalidArgument("features and labels must be matrices, but have shapes ", c.input(0).ToString(), " and ",
                           c.input(1).ToString());
  }
  c.set_output(0, {out.dim(0)});
  c.set_output(1, out);
  return absl::OkStatus();
}

Status SparseShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape features, c.WithRank(0, 2));
  MR_ASSIGN_OR_RETURN(const PartialShape labels, c.WithRank(1, 1));
  const int64_t rows = features.dim(0), others = labels.dim(0);
  if (rows >= 0 && others >= 0 && rows != others) {
    return InvalidArgument("features of shape ", features.ToString(), " have ", rows, " rows, but there are ", others,
                           " labels");
  }
  c.set_output(0, {rows >= 0 ? rows : others});
  c.set_output(1, {rows >= 0 ? rows : others, features.dim(1)});
  return absl::OkStatus();
}

// Through the loss: its gradient times output 1. Through output 1 (second order): as for softmax.
void SetFeatureGradient(GradientContext& c) {
  const Endpoint column = c.Op("ExpandDims", {c.grad(0), c.Scalar<int32_t>(-1)});
  Endpoint dx = c.Mul(column, c.output(1));
  if (!c.raw_grad(1).IsNone()) {
    const Endpoint softmax = c.Op("Softmax", {c.input(0)});
    const Endpoint g = c.grad(1);
    const Endpoint sum = c.Op("Sum", {c.Mul(g, softmax), c.Ints({-1})}, {{"keep_dims", true}});
    dx = c.Add(dx, c.Mul(c.Sub(g, sum), softmax));
  }
  c.set_input_grad(0, dx);
}

Status DenseGradient(GradientContext& c) {
  SetFeatureGradient(c);
  const Endpoint column = c.Op("ExpandDims", {c.grad(0), c.Scalar<int32_t>(-1)});
  c.set_input_grad(1, c.Mul(column, c.Neg(c.Op("LogSoftmax", {c.input(0)}))));
  return absl::OkStatus();
}

Status SparseGradient(GradientContext& c) {
  SetFeatureGradient(c);
  return absl::OkStatus();
}

MILLRACE_OP(SoftmaxCrossEntropyWithLogits)
    .Summary("Cross entropy of softmax(features) with rows of labels, and its gradient.")
    .Input("features: T")
    .Input("labels: T")
    .Output("loss: T")
    .Output("backprop: T")
    .Attr("T: {half, bfloat16, float, double}")
    .Shape(DenseShape)
    .Gradient(DenseGradient);

MILLRACE_OP(SparseSoftmaxCrossEntropyWithLogits)
    .Summary("Cross entropy of softmax(features) with one class per row, and its gradient.")
    .Input("features: T")
    .Input("labels: Tlabels")
    .Output("loss: T")
    .Output("backprop: T")
    .Attr("T: {half, bfloat16, float, double}")
    .Attr("Tlabels: {int32, int64} = int64")
    .Shape(SparseShape)
    .Gradient(SparseGradient);

// Processes blocks of rows: computes the shifted features, their exponentials and sums, and calls finish(row, shifted,
// e, sum, &loss, backprop) for each row.
template <typename T, typename Finish>
void ForRows(KernelContext& ctx, const T* x, T* loss, T* backprop, int64_t rows, int64_t width, Finish finish) {
  using C = ComputeType<T>;
  const int64_t block = RowsPerBlock(width);
  ctx.ParallelFor(rows, RowGrain(width), [&](int64_t begin, int64_t end) {
    C small[2048];
    C sums[1024];
    std::vector<C> large;
    C* shifted = small;
    if (2 * block * width > 2048) {
      large.resize(2 * block * width);
      shifted = large.data();
    }
    C* e = shifted + block * width;
    for (int64_t r = begin; r < end; r += block) {
      const int64_t n = std::min(block, end - r);
      if constexpr (std::is_same_v<T, C>) {
        ShiftRows(x + r * width, n, width, shifted);
      } else {
        Widen(x + r * width, shifted, n * width);
        ShiftRows(shifted, n, width, shifted);
      }
      ExpRows(shifted, n, width, e, sums);
      for (int64_t i = 0; i < n; ++i) {
        C row_loss(0);
        finish(r + i, shifted + i * width, e + i * width, sums[i], &row_loss);
        loss[r + i] = static_cast<T>(row_loss);
      }
      // `finish` left the gradient in e.
      if constexpr (std::is_same_v<T, C>) {
        std::copy(e, e + n * width, backprop + r * width);
      } else {
        Narrow(e, backprop + r * width, n * width);
      }
    }
  });
}

// `x` broadcast to `shape`, both of rank 2, in scratch memory unless it has that shape.
template <typename T>
StatusOr<Tensor> Repeated(KernelContext& ctx, const Tensor& x, const Shape& shape) {
  if (x.shape() == shape) return x;
  MR_ASSIGN_OR_RETURN(Tensor y, ctx.AllocateTemp(x.dtype(), shape));
  // Missing leading dimensions count as 1.
  const int64_t x_cols = x.rank() >= 1 ? x.dim(x.rank() - 1) : 1;
  const int64_t x_rows = x.rank() >= 2 ? x.dim(0) : 1;
  const int64_t rows = shape.dim(0), cols = shape.dim(1);
  for (int64_t r = 0; r < rows; ++r) {
    const T* in = x.data<T>() + (x_rows == 1 ? 0 : r) * x_cols;
    T* out = y.data<T>() + r * cols;
    for (int64_t i = 0; i < cols; ++i) out[i] = in[x_cols == 1 ? 0 : i];
  }
  return y;
}

class DenseCrossEntropyKernel : public Kernel {
 public:
  explicit DenseCrossEntropyKernel(KernelInit& init) {
    if (!DispatchType(FloatTypes{}, init.input_type(0), [](auto) {})) FailDType(init, init.input_type(0));
  }

  Status Compute(KernelContext& ctx) override {
    const Tensor& features = ctx.input(0);
    const Tensor& labels = ctx.input(1);
    Shape shape = features.shape();
    if (shape != labels.shape()) {
      StatusOr<PartialShape> both = BroadcastShapes(features.shape(), labels.shape());
      if (!both.ok()) return Misfit(features, labels);
      shape = both->AsShape();
    }
    if (shape.rank() != 2) return Misfit(features, labels);
    MR_ASSIGN_OR_RETURN(Tensor * loss, ctx.AllocateOutput(0, Shape({shape.dim(0)})));
    MR_ASSIGN_OR_RETURN(Tensor * backprop, ctx.ForwardOrAllocateOutput({0}, 1, shape));
    if (shape.dim(0) == 0) return absl::OkStatus();
    if (shape.dim(1) == 0) {
      return InvalidArgument("features of shape ", features.shape().ToString(), " have no classes");
    }
    Status status;
    DispatchType(FloatTypes{}, features.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      status = Rows<T>(ctx, features, labels, shape, loss->data<T>(), backprop->data<T>());
    });
    return status;
  }

 private:
  static Status Misfit(const Tensor& features, const Tensor& labels) {
    return InvalidArgument("features and labels must be matrices of one shape, but have shapes ",
                           features.shape().ToString(), " and ", labels.shape().ToString());
  }

  template <typename T>
  static Status Rows(KernelContext& ctx, const Tensor& features, const Tensor& labels, const Shape& shape, T* loss,
                     T* backprop) {
    using C = ComputeType<T>;
    MR_ASSIGN_OR_RETURN(const Tensor x, Repeated<T>(ctx, features, shape));
    MR_ASSIGN_OR_RETURN(const Tensor y, Repeated<T>(ctx, labels, shape));
    const int64_t width = shape.dim(1);
    const T* label = y.data<T>();
    ForRows<T>(ctx, x.data<T>(), loss, backprop, shape.dim(0), width,
               [&](int64_t row, const C* shifted, C* e, C sum, C* row_loss) {
                 const T* want = label + row * width;
                 const C log_sum = std::log(sum), scale = C(1) / sum;
                 C total(0);
                 for (int64_t i = 0; i < width; ++i) {
                   const C p = static_cast<C>(want[i]);
                   total += p * (log_sum - shifted[i]);
                   e[i] = e[i] * scale - p;
                 }
                 *row_loss = total;
               });
    return absl::OkStatus();
  }
};

class SparseCrossEntropyKernel : public Kernel {
 public:
  explicit SparseCrossEntropyKernel(KernelInit& init) {
    if (!DispatchType(FloatTypes{}, init.input_type(0), [](auto) {})) FailDType(init, init.input_type(0));
  }

  Status Compute(KernelContext& ctx) override {
    const Tensor& features = ctx.input(0);
    const Tensor& labels = ctx.input(1);
    if (features.rank() != 2 || labels.rank() != 1 || features.dim(0) != labels.dim(0)) {
      return InvalidArgument("features must be a matrix and labels a vector of as many rows, but have shapes ",
                             features.shape().ToString(), " and ", labels.shape().ToString());
    }
    const int64_t rows = features.dim(0), width = features.dim(1);
    if (rows > 0 && width == 0) {
      return InvalidArgument("features of shape ", features.shape().ToString(), " have no classes");
    }
    MR_ASSIGN_OR_RETURN(Tensor * loss, ctx.AllocateOutput(0, Shape({rows})));
    MR_ASSIGN_OR_RETURN(Tensor * backprop, ctx.ForwardOrAllocateOutput({0}, 1, features.shape()));
    Status status;
    DispatchType(IndexTypes{}, labels.dtype(), [&](auto index) {
      using I = typename decltype(index)::type;
      const I* classes = labels.data<I>();
      for (int64_t i = 0; i < rows && status.ok(); ++i) {
        if (classes[i] < 0 || classes[i] >= width) {
          status = InvalidArgument("label ", i, " is ", classes[i], ", outside the ", width,
                                   " classes of features of shape ", features.shape().ToString());
        }
      }
      if (!status.ok()) return;
      DispatchType(FloatTypes{}, features.dtype(), [&](auto tag) {
        using T = typename decltype(tag)::type;
        using C = ComputeType<T>;
        ForRows<T>(ctx, features.data<T>(), loss->data<T>(), backprop->data<T>(), rows, width,
                   [&](int64_t row, const C* shifted, C* e, C sum, C* row_loss) {
                     const C scale = C(1) / sum;
                     for (int64_t i = 0; i < width; ++i) e[i] *= scale;
                     *row_loss = std::log(sum) - shifted[classes[row]];
                     e[classes[row]] -= C(1);
                   });
      });
    });
    return status;
  }
};

MILLRACE_KERNEL(SoftmaxCrossEntropyWithLogits, kCpu, DenseCrossEntropyKernel);
MILLRACE_KERNEL(SparseSoftmaxCrossEntropyWithLogits, kCpu, SparseCrossEntropyKernel);

}  // namespace
}  // namespace millrace
