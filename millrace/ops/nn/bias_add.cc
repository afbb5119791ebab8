// BiasAdd: a vector added along the channels, and the sum over everything else for its gradient.
#include "millrace/graph/gradient.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/nn/blockwise.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

// A tensor viewed as [outer, channels, inner].
struct ChannelView {
  int64_t outer = 1, channels = 1, inner = 1;
};

ChannelView ViewOf(const Shape& s, bool channels_first) {
  const int axis = channels_first ? 1 : s.rank() - 1;
  return {s.Product(0, axis), s.dim(axis), s.Product(axis + 1, s.rank())};
}

StatusOr<bool> ChannelsFirst(const Node& node) {
  if (node.FindAttr("data_format") == nullptr) return false;  // BiasAddV1
  MR_ASSIGN_OR_RETURN(const std::string format, node.Attr<std::string>("data_format"));
  return format == "NCHW";
}

Status BiasAddShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(const bool first, ChannelsFirst(c.node()));
  MR_ASSIGN_OR_RETURN(PartialShape value, c.WithRankAtLeast(0, 2));
  MR_ASSIGN_OR_RETURN(const PartialShape bias, c.WithRank(1, 1));
  if (value.known_rank()) {
    const int axis = first ? 1 : value.rank() - 1;
    const int64_t channels = value.dim(axis), wanted = bias.dim(0);
    if (channels >= 0 && wanted >= 0 && channels != wanted) {
      return InvalidArgument("the bias has ", wanted, " elements, but the value of shape ", value.ToString(), " has ",
                             channels, " channels");
    }
    if (channels < 0) value.set_dim(axis, wanted);
  }
  c.set_output(0, value);
  return absl::OkStatus();
}

Status BiasAddGradShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(const bool first, ChannelsFirst(c.node()));
  MR_ASSIGN_OR_RETURN(const PartialShape value, c.WithRankAtLeast(0, 2));
  c.set_output(0, {value.known_rank() ? value.dim(first ? 1 : value.rank() - 1) : -1});
  return absl::OkStatus();
}

Status BiasAddGradient(GradientContext& c) {
  const std::string format = c.AttrOr<std::string>("data_format", "NHWC");
  c.set_input_grad(0, c.grad());
  c.set_input_grad(1, c.Op("BiasAddGrad", {c.grad()}, {{"data_format", format}}));
  return absl::OkStatus();
}

// The gradient of the sum is the vector broadcast to all rows.
Status BiasAddGradGradient(GradientContext& c) {
  const std::string format = c.AttrOr<std::string>("data_format", "NHWC");
  c.set_input_grad(0, c.Op("BiasAdd", {c.ZerosLike(c.input(0)), c.grad()}, {{"data_format", format}}));
  return absl::OkStatus();
}

#define MR_BIAS_TYPES                                                                                 \
  "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, " \
  "qint16, quint16, uint16, complex128, half, uint32, uint64}"

MILLRACE_OP(BiasAdd)
    .Summary("Adds a vector along the channels.")
    .Input("value: T")
    .Input("bias: T")
    .Output("output: T")
    .Attr(MR_BIAS_TYPES)
    .Attr("data_format: {'NHWC', 'NCHW'} = 'NHWC'")
    .Shape(BiasAddShape)
    .Gradient(BiasAddGradient);

MILLRACE_OP(BiasAddV1)
    .Summary("Adds a vector along the last dimension.")
    .Input("value: T")
    .Input("bias: T")
    .Output("output: T")
    .Attr(MR_BIAS_TYPES)
    .Shape(BiasAddShape)
    .Gradient(BiasAddGradient);

MILLRACE_OP(BiasAddGrad)
    .Summary("The gradient of BiasAdd for the bias: the sum over all dimensions except the channels.")
    .Input("out_backprop: T")
    .Output("output: T")
    .Attr(MR_BIAS_TYPES)
    .Attr("data_format: {'NHWC', 'NCHW'} = 'NHWC'")
    .Shape(BiasAddGradShape)
    .Gradient(BiasAddGradGradient);

template <typename T>
T Sum(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  } else {
    return a + b;
  }
}

class BiasAddKernel : public Kernel {
 public:
  explicit BiasAddKernel(KernelInit& init) {
    StatusOr<bool> first = ChannelsFirst(init.node());
    init.Fail(first.status());
    channels_first_ = first.ok() && *first;
    if (!DispatchType(NumberTypes{}, init.input_type(0), [](auto) {})) {
      FailDType(init, init.input_type(0));
    }
  }

  Status Compute(KernelContext& ctx) override {
    const Tensor& x = ctx.input(0);
    const Tensor& bias = ctx.input(1);
    if (x.rank() < 2) {
      return InvalidArgument("the value must have at least two dimensions, but has shape ", x.shape().ToString());
    }
    const ChannelView v = ViewOf(x.shape(), channels_first_);
    if (bias.rank() != 1 || bias.dim(0) != v.channels) {
      return InvalidArgument("the bias must be a vector of ", v.channels, " elements, as many as the value of shape ",
                             x.shape().ToString(), " has channels, but has shape ", bias.shape().ToString());
    }
    MR_ASSIGN_OR_RETURN(Tensor * y, ctx.ForwardOrAllocateOutput({0}, 0, x.shape()));
    DispatchType(NumberTypes{}, x.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      Add<T>(ctx, v, x.data<T>(), bias.data<T>(), y->data<T>());
    });
    return absl::OkStatus();
  }

 private:
  template <typename T>
  static void Add(KernelContext& ctx, const ChannelView& v, const T* x, const T* b, T* y) {
    if (v.inner == 1 && v.channels <= kShortRow) return AddToShortRows(ctx, v, x, b, y);
    const int64_t rows = v.inner == 1 ? v.outer : v.outer * v.channels;
    const int64_t width = v.inner == 1 ? v.channels : v.inner;
    const int64_t grain = std::max<int64_t>(1, kElementGrain / std::max<int64_t>(width, 1));
    ctx.ParallelFor(rows, grain, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const T* in = x + r * width;
        T* out = y + r * width;
        if (v.inner == 1) {
          for (int64_t i = 0; i < width; ++i) out[i] = Sum(in[i], b[i]);
        } else {
          const T add = b[r % v.channels];
          for (int64_t i = 0; i < width; ++i) out[i] = Sum(in[i], add);
        }
      }
    });
  }

  // Several short rows are processed together with a replicated bias, so that vectors are full.
  static constexpr int64_t kShortRow = 64;
  template <typename T>
  static void AddToShortRows(KernelContext& ctx, const ChannelView& v, const T* x, const T* b, T* y) {
    if (v.channels == 0) return;
    const int64_t rows = 2 * kShortRow / v.channels, width = rows * v.channels;
    T repeated[2 * kShortRow];
    for (int64_t r = 0; r < rows; ++r) std::copy(b, b + v.channels, repeated + r * v.channels);
    const int64_t total = v.outer * v.channels;
    ctx.ParallelFor(total, std::max<int64_t>(1, kElementGrain / width) * width, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; i += width) {
        const int64_t n = std::min(width, end - i);
        const T* in = x + i;
        T* out = y + i;
#pragma GCC ivdep
        for (int64_t k = 0; k < n; ++k) out[k] = Sum(in[k], repeated[k]);
      }
    });
  }

  bool channels_first_ = false;
};

// Sums blocks of a fixed size and then the blocks in order, independently of the number of threads.
class BiasAddGradKernel : public Kernel {
 public:
  explicit BiasAddGradKernel(KernelInit& init) {
    StatusOr<bool> first = ChannelsFirst(init.node());
    init.Fail(first.status());
    channels_first_ = first.ok() && *first;
    if (!DispatchType(NumberTypes{}, init.input_type(0), [](auto) {})) {
      FailDType(init, init.input_type(0));
    }
  }

  Status Compute(KernelContext& ctx) override {
    const Tensor& g = ctx.input(0);
    if (g.rank() < 2) {
      return InvalidArgument("the gradient must have at least two dimensions, but has shape ", g.shape().ToString());
    }
    const ChannelView v = ViewOf(g.shape(), channels_first_);
    MR_ASSIGN_OR_RETURN(Tensor * sum, ctx.AllocateOutput(0, Shape({v.channels})));
    Status status;
    DispatchType(NumberTypes{}, g.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      status = v.inner == 1 ? SumRows<T>(ctx, v, g.data<T>(), sum->data<T>())
                            : SumPlanes<T>(ctx, v, g.data<T>(), sum->data<T>());
    });
    return status;
  }

 private:
  // out[c] = sum of x[i, c] over rows, into ComputeType.
  template <typename T, typename C>
  static void AddRows(const T* x, int64_t rows, int64_t channels, C* out) {
    for (int64_t i = 0; i < channels; ++i) out[i] = C(0);
    for (int64_t r = 0; r < rows; ++r) {
      const T* row = x + r * channels;
      for (int64_t i = 0; i < channels; ++i) out[i] = Sum<C>(out[i], static_cast<C>(row[i]));
    }
  }

  template <typename T>
  static Status SumRows(KernelContext& ctx, const ChannelView& v, const T* x, T* sum) {
    using C = ComputeType<T>;
    const int64_t rows_per_block = std::max<int64_t>(1, kElementGrain / std::max<int64_t>(v.channels, 1));
    const int64_t blocks = (v.outer + rows_per_block - 1) / rows_per_block;
    if constexpr (std::is_same_v<T, C>) {
      if (blocks <= 1) {
        AddRows(x, v.outer, v.channels, sum);
        return absl::OkStatus();
      }
    }
    MR_ASSIGN_OR_RETURN(Tensor parts,
                        ctx.AllocateTemp(DTypeOf<C>(), Shape({std::max<int64_t>(blocks, 1), v.channels})));
    C* part = parts.data<C>();
    if (blocks == 0) std::fill(part, part + v.channels, C(0));
    ctx.ParallelFor(v.outer, rows_per_block, [&](int64_t begin, int64_t end) {
      AddRows(x + begin * v.channels, end - begin, v.channels, part + begin / rows_per_block * v.channels);
    });
    for (int64_t b = 1; b < blocks; ++b) {
      for (int64_t i = 0; i < v.channels; ++i) part[i] = Sum<C>(part[i], part[b * v.channels + i]);
    }
    for (int64_t i = 0; i < v.channels; ++i) sum[i] = static_cast<T>(part[i]);
    return absl::OkStatus();
  }

  template <typename T>
  static Status SumPlanes(KernelContext& ctx, const ChannelView& v, const T* x, T* sum) {
    using C = ComputeType<T>;
    const int64_t work = std::max<int64_t>(1, v.outer * v.inner);
    ctx.ParallelFor(v.channels, std::max<int64_t>(1, kElementGrain / work), [&](int64_t begin, int64_t end) {
      for (int64_t c = begin; c < end; ++c) {
        C total(0);
        for (int64_t o = 0; o < v.outer; ++o) {
          const T* plane = x + (o * v.channels + c) * v.inner;
          C part(0);
          for (int64_t i = 0; i < v.inner; ++i) part = Sum<C>(part, static_cast<C>(plane[i]));
          total = Sum<C>(total, part);
        }
        sum[c] = static_cast<T>(total);
      }
    });
    return absl::OkStatus();
  }

  bool channels_first_ = false;
};

MILLRACE_KERNEL(BiasAdd, kCpu, BiasAddKernel);
MILLRACE_KERNEL(BiasAddV1, kCpu, BiasAddKernel);
MILLRACE_KERNEL(BiasAddGrad, kCpu, BiasAddGradKernel);

}  // namespace
}  // namespace millrace
