// Softmax and LogSoftmax along the last dimension.
#include <immintrin.h>

#include <algorithm>
#include <cmath>

#include "millrace/graph/gradient.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/kernels/stream_copy.h"
#include "millrace/ops/nn/blockwise.h"
#include "millrace/ops/nn/softmax_rows.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

Status SoftmaxShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape logits, c.WithRankAtLeast(0, 1));
  c.set_output(0, logits);
  return absl::OkStatus();
}

Endpoint SumLast(GradientContext& c, Endpoint x) { return c.Op("Sum", {x, c.Ints({-1})}, {{"keep_dims", true}}); }

// dx = (g - sum(g * y)) * y
Status SoftmaxGradient(GradientContext& c) {
  const Endpoint y = c.output(0), g = c.grad();
  c.set_input_grad(0, c.Mul(c.Sub(g, SumLast(c, c.Mul(g, y))), y));
  return absl::OkStatus();
}

// dx = g - sum(g) * exp(y)
Status LogSoftmaxGradient(GradientContext& c) {
  const Endpoint g = c.grad();
  c.set_input_grad(0, c.Sub(g, c.Mul(SumLast(c, g), c.Op("Exp", {c.output(0)}))));
  return absl::OkStatus();
}

MILLRACE_OP(Softmax)
    .Summary("exp(x) / sum(exp(x)) along the last dimension.")
    .Input("logits: T")
    .Output("softmax: T")
    .Attr("T: {half, bfloat16, float, double}")
    .Shape(SoftmaxShape)
    .Gradient(SoftmaxGradient);

MILLRACE_OP(LogSoftmax)
    .Summary("x - log(sum(exp(x))) along the last dimension.")
    .Input("logits: T")
    .Output("logsoftmax: T")
    .Attr("T: {half, bfloat16, float, double}")
    .Shape(SoftmaxShape)
    .Gradient(LogSoftmaxGradient);

class SoftmaxKernel : public Kernel {
 public:
  explicit SoftmaxKernel(KernelInit& init) : log_(init.node().is_type("LogSoftmax")) {
    if (!DispatchType(FloatTypes{}, init.input_type(0), [](auto) {})) FailDType(init, init.input_type(0));
  }

  Status Compute(KernelContext& ctx) override {
    const Tensor& x = ctx.input(0);
    if (x.rank() < 1) {
      return InvalidArgument("logits must have at least one dimension, but have shape ", x.shape().ToString());
    }
    MR_ASSIGN_OR_RETURN(Tensor * y, ctx.ForwardOrAllocateOutput({0}, 0, x.shape()));
    if (y->num_elements() == 0) return absl::OkStatus();
    DispatchType(FloatTypes{}, x.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      const int64_t width = x.dim(x.rank() - 1);
      Rows<T>(ctx, x.data<T>(), y->data<T>(), y->num_elements() / width, width);
    });
    return absl::OkStatus();
  }

 private:
  template <typename T>
  void Rows(KernelContext& ctx, const T* x, T* y, int64_t rows, int64_t width) const {
    using C = ComputeType<T>;
    const int64_t block = RowsPerBlock(width);
    const bool stream = x != y && rows * width * sizeof(T) >= kStreamBytes;
    // Streaming uses long pieces: the end of each waits for the stores and restarts the hardware prefetcher.
    const int64_t grain = stream ? std::max<int64_t>(RowGrain(width), (int64_t{1} << 18) / width) : RowGrain(width);
    ctx.ParallelFor(rows, grain, [&](int64_t begin, int64_t end) {
      std::vector<C> wide;
      if (!std::is_same_v<T, C> || log_ || stream) wide.resize(2 * block * width + kLineFloats);
      if constexpr (std::is_same_v<T, float>) {
        if (stream && !log_ && width >= 8) {
          StreamRows(x + begin * width, y + begin * width, end - begin, width, AlignedUp(wide.data()));
          StreamFence();
          return;
        }
      }
      for (int64_t r = begin; r < end; r += block) {
        const int64_t n = std::min(block, end - r);
        if constexpr (std::is_same_v<T, C>) {
          C* const out = stream ? wide.data() + block * width : y + r * width;
          Block<C>(x + r * width, out, n, width, wide.data());
          if (stream) StreamCopy(out, y + r * width, n * width * sizeof(C));
        } else {
          C* in = wide.data() + block * width;
          Widen(x + r * width, in, n * width);
          Block<C>(in, in, n, width, wide.data());
          Narrow(in, y + r * width, n * width);
        }
      }
      if (stream) StreamFence();
    });
  }

  // Cache line size in floats.
  static constexpr int64_t kLineFloats = 16;
  static float* AlignedUp(float* p) {
    return reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(p) + 63) & ~uintptr_t{63});
  }

  // For rows that do not fit into the cache: each is written while the exponentials of the next are computed. `e` holds
  // two rows.
  static void StreamRows(const float* x, float* y, int64_t rows, int64_t width, float* e) {
    const bool overlap = width % 8 == 0 && reinterpret_cast<uintptr_t>(y) % 32 == 0;
    float scale = 0;
    for (int64_t r = 0; r < rows; ++r) {
      const float* const row = x + r * width;
      float* const now = e + (r % 2) * width;
      const float most = LargestOf(row, width);
      float part[8] = {};
      if (overlap && r > 0) {
        vector::ExpOfDifference(row, most, now, width, part,
                                {.from = e + ((r + 1) % 2) * width, .scale = scale, .to = y + (r - 1) * width});
      } else {
        vector::ExpOfDifference(row, most, now, width, part);
      }
      scale = ScaleOf(part);
      if (!overlap || r == rows - 1) StreamScaled(now, scale, y + r * width, width);
    }
  }

  // Computes the exponentials and their sum in one pass. Returns the factor that normalises them.
  static float Exponentials(const float* x, float* y, int64_t width) {
    float part[8] = {};
    vector::ExpOfDifference(x, LargestOf(x, width), y, width, part);
    return ScaleOf(part);
  }
  static float ScaleOf(const float* part) {
    return 1.0f / (((part[0] + part[4]) + (part[2] + part[6])) + ((part[1] + part[5]) + (part[3] + part[7])));
  }
  static void Row(const float* x, float* y, int64_t width) {
    const float scale = Exponentials(x, y, width);
    for (int64_t i = 0; i < width; ++i) y[i] *= scale;
  }

  // `scratch` holds a block for the logarithm's exponentials.
  template <typename C>
  void Block(const C* x, C* y, int64_t rows, int64_t width, C* scratch) const {
    if constexpr (std::is_same_v<C, float>) {
      if (!log_ && width >= 8) {
        for (int64_t r = 0; r < rows; ++r) Row(x + r * width, y + r * width, width);
        return;
      }
    }
    C sums[1024];
    ShiftRows(x, rows, width, y);
    ExpRows(y, rows, width, log_ ? scratch : y, sums);
    for (int64_t r = 0; r < rows; ++r) {
      C* row = y + r * width;
      if (log_) {
        const C log_sum = std::log(sums[r]);
        for (int64_t i = 0; i < width; ++i) row[i] -= log_sum;
      } else {
        const C scale = C(1) / sums[r];
        for (int64_t i = 0; i < width; ++i) row[i] *= scale;
      }
    }
  }

  const bool log_;
};

MILLRACE_KERNEL(Softmax, kCpu, SoftmaxKernel);
MILLRACE_KERNEL(LogSoftmax, kCpu, SoftmaxKernel);

}  // namespace
}  // namespace millrace
