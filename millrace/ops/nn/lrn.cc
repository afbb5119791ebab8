// LRN: local response normalisation across channels.
#include <cmath>
#include <memory>

#include "millrace/graph/gradient.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/kernels/vec.h"
#include "millrace/ops/kernels/vector_math.h"
#include "millrace/ops/nn/blockwise.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

Status LrnShape(ShapeContext& c) {
  PartialShape out = PartialShape::UnknownOfRank(4);
  for (int i = 0; i < c.num_inputs(); ++i) {
    MR_ASSIGN_OR_RETURN(const PartialShape in, c.WithRank(i, 4));
    MR_ASSIGN_OR_RETURN(out, out.MergeWith(in));
  }
  c.set_output(0, out);
  return absl::OkStatus();
}

Status LrnGradient(GradientContext& c) {
  c.set_input_grad(
      0, c.Op("LRNGrad", {c.grad(), c.input(0), c.output(0)}, c.CopyAttrs({"depth_radius", "bias", "alpha", "beta"})));
  return absl::OkStatus();
}

MILLRACE_OP(LRN)
    .Summary("Local response normalisation across channels.")
    .Input("input: T")
    .Output("output: T")
    .Attr("depth_radius: int = 5")
    .Attr("bias: float = 1.0")
    .Attr("alpha: float = 1.0")
    .Attr("beta: float = 0.5")
    .Attr("T: {half, bfloat16, float} = float")
    .Shape(LrnShape)
    .Gradient(LrnGradient);

MILLRACE_OP(LRNGrad)
    .Summary("The gradient of LRN.")
    .Input("input_grads: T")
    .Input("input_image: T")
    .Input("output_image: T")
    .Output("output: T")
    .Attr("depth_radius: int = 5")
    .Attr("bias: float = 1.0")
    .Attr("alpha: float = 1.0")
    .Attr("beta: float = 0.5")
    .Attr("T: {half, bfloat16, float} = float")
    .Shape(LrnShape)
    .NotDifferentiable();

using LrnTypes = Types<float, half>;

struct LrnAttrs {
  int64_t radius = 0;
  float bias = 0, alpha = 0, beta = 0;

  explicit LrnAttrs(KernelInit& init) {
    init.Attr("depth_radius", &radius);
    init.Attr("bias", &bias);
    init.Attr("alpha", &alpha);
    init.Attr("beta", &beta);
    if (radius < 0) init.Fail(InvalidArgument("depth_radius must not be negative, but is ", radius));
    if (!DispatchType(LrnTypes{}, init.input_type(0), [](auto) {})) FailDType(init, init.input_type(0));
  }
  // bias + alpha * squares around channel c.
  float Norm(const float* x, int64_t c, int64_t channels) const {
    const int64_t r = std::min(radius, channels);
    float sum = 0;
    for (int64_t i = std::max<int64_t>(0, c - r); i < std::min(channels, c + r + 1); ++i) sum += x[i] * x[i];
    return bias + alpha * sum;
  }
  // norms^-beta in place; `room` has place for n.
  void RaiseToMinusBeta(float* norms, float* room, int64_t n) const {
    if (beta == 1.0f) {
      for (int64_t i = 0; i < n; ++i) norms[i] = 1.0f / norms[i];
    } else if (beta == 0.5f) {
      for (int64_t i = 0; i < n; ++i) norms[i] = 1.0f / std::sqrt(norms[i]);
    } else {
      vector::Log(norms, room, n);
      for (int64_t i = 0; i < n; ++i) room[i] *= -beta;
      vector::Exp(room, room, n);
      // The logarithm needs positive numbers.
      for (int64_t i = 0; i < n; ++i) norms[i] = norms[i] > 0 ? room[i] : std::pow(norms[i], -beta);
    }
  }
};

class LrnKernel : public Kernel {
 public:
  explicit LrnKernel(KernelInit& init) : attrs_(init) {}
  Status Compute(KernelContext& ctx) override {
    const Tensor& x = ctx.input(0);
    if (x.rank() != 4) return InvalidArgument("the input must have 4 dimensions, but has shape ", x.shape().ToString());
    MR_ASSIGN_OR_RETURN(Tensor * y, ctx.AllocateOutput(0, x.shape()));
    DispatchType(LrnTypes{}, x.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      Rows<T>(ctx, x.data<T>(), y->data<T>(), x.shape().Product(0, 3), x.dim(3));
    });
    return absl::OkStatus();
  }

 private:
  template <typename T>
  void Rows(KernelContext& ctx, const T* x, T* y, int64_t rows, int64_t channels) const {
    const int64_t radius = std::min(attrs_.radius, channels);
    // Rows are separated by zeros, so that sums over neighbours are loops over all rows at once.
    const int64_t step = channels + radius;
    const int64_t grain = std::max<int64_t>(1, 1024 / std::max<int64_t>(channels, 1));
    ctx.ParallelFor(rows, grain, [&](int64_t begin, int64_t end) {
      const int64_t n = ((end - begin) * step + kVec - 1) / kVec * kVec;
      const auto room = std::make_unique_for_overwrite<float[]>(2 * n + 2 * radius);
      float *squares = room.get(), *norms = squares + n + 2 * radius;
      std::fill_n(squares, n + 2 * radius, 0.0f);
      for (int64_t r = begin; r < end; ++r) {
        float* row = squares + radius + (r - begin) * step;
        for (int64_t c = 0; c < channels; ++c) row[c] = Square(static_cast<float>(x[r * channels + c]));
      }
      for (int64_t i = 0; i < n; i += kVec) {
        Vec sum = Broadcast(0);
        for (int64_t o = 0; o <= 2 * radius; ++o) sum += Load(squares + i + o);
        Store(norms + i, Broadcast(attrs_.bias) + Broadcast(attrs_.alpha) * sum);
      }
      attrs_.RaiseToMinusBeta(norms, squares, n);
      for (int64_t r = begin; r < end; ++r) {
        const float* row = norms + (r - begin) * step;
        for (int64_t c = 0; c < channels; ++c) {
          y[r * channels + c] = static_cast<T>(static_cast<float>(x[r * channels + c]) * row[c]);
        }
      }
    });
  }
  static float Square(float x) { return x * x; }

  const LrnAttrs attrs_;
};

class LrnGradKernel : public Kernel {
 public:
  explicit LrnGradKernel(KernelInit& init) : attrs_(init) {}
  Status Compute(KernelContext& ctx) override {
    const Tensor& dy = ctx.input(0);
    const Tensor& x = ctx.input(1);
    const Tensor& y = ctx.input(2);
    if (x.rank() != 4 || dy.shape() != x.shape() || y.shape() != x.shape()) {
      return InvalidArgument("gradient, input and output must have one shape of 4 dimensions, but have ",
                             dy.shape().ToString(), ", ", x.shape().ToString(), " and ", y.shape().ToString());
    }
    MR_ASSIGN_OR_RETURN(Tensor * dx, ctx.AllocateOutput(0, x.shape()));
    DispatchType(LrnTypes{}, x.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      Rows<T>(ctx, dy.data<T>(), x.data<T>(), y.data<T>(), dx->data<T>(), x.shape().Product(0, 3), x.dim(3));
    });
    return absl::OkStatus();
  }

 private:
  // y_j = x_j n_j^-beta, so dy_j/dx_i = [i = j] n_j^-beta - 2 alpha beta x_i y_j / n_j.
  template <typename T>
  void Rows(KernelContext& ctx, const T* dy, const T* x, const T* y, T* dx, int64_t rows, int64_t channels) const {
    const int64_t radius = std::min(attrs_.radius, channels);
    ctx.ParallelFor(rows, std::max<int64_t>(1, 512 / std::max<int64_t>(channels, 1)), [&](int64_t begin, int64_t end) {
      std::vector<float> buffer(4 * channels);
      float *in = buffer.data(), *out = in + channels, *grad = out + channels, *sum = grad + channels;
      for (int64_t r = begin; r < end; ++r) {
        Widen(x + r * channels, in, channels);
        Widen(y + r * channels, out, channels);
        Widen(dy + r * channels, grad, channels);
        std::fill(sum, sum + channels, 0.0f);
        for (int64_t j = 0; j < channels; ++j) {
          const float norm = attrs_.Norm(in, j, channels);
          const float common = -2.0f * attrs_.alpha * attrs_.beta * out[j] / norm * grad[j];
          const int64_t last = std::min(channels, j + radius + 1);
          for (int64_t i = std::max<int64_t>(0, j - radius); i < last; ++i) sum[i] += common * in[i];
          sum[j] += std::pow(norm, -attrs_.beta) * grad[j];
        }
        Narrow(sum, dx + r * channels, channels);
      }
    });
  }
  const LrnAttrs attrs_;
};

MILLRACE_KERNEL(LRN, kCpu, LrnKernel);
MILLRACE_KERNEL(LRNGrad, kCpu, LrnGradKernel);

}  // namespace
}  // namespace millrace
