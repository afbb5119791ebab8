// FractionalMaxPool, FractionalAvgPool and their gradients: pools over regions of random sizes, whose average is the
// pooling ratio.
#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "millrace/base/mutex.h"
#include "millrace/graph/gradient.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/random/distributions.h"
#include "millrace/ops/random/random_source.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

using FractionalTypes = Types<float, double, int32_t, int64_t>;
// Where the regions of a dimension begin, and the end of the last.
using PoolingSequence = std::vector<int64_t>;

Status FractionalPoolShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape in, c.WithRank(0, 4));
  MR_ASSIGN_OR_RETURN(const auto ratio, c.Attr<std::vector<float>>("pooling_ratio"));
  if (ratio.size() != 4) return InvalidArgument("pooling_ratio field must specify 4 dimensions");
  PartialShape out = in;
  for (int d = 0; d < 4; ++d) {
    if (!(ratio[d] >= 1)) return InvalidArgument("pooling_ratio cannot be smaller than 1, got: ", ratio[d]);
    if (in.dim(d) >= 0) out.set_dim(d, static_cast<int64_t>(std::floor(static_cast<float>(in.dim(d)) / ratio[d])));
  }
  c.set_output(0, out);
  for (int d = 1; d <= 2; ++d) c.set_output(d, PartialShape({out.dim(d) < 0 ? -1 : out.dim(d) + 1}));
  return absl::OkStatus();
}

Status FractionalMaxPoolGradient(GradientContext& c) {
  c.set_input_grad(0, c.Op("FractionalMaxPoolGrad", {c.input(0), c.output(0), c.grad(0), c.output(1), c.output(2)},
                           c.CopyAttrs({"overlapping"})));
  return c.status();
}

Status FractionalAvgPoolGradient(GradientContext& c) {
  const Endpoint shape = c.Op("Shape", {c.input(0)}, {{"out_type", DType::kInt64}});
  c.set_input_grad(
      0, c.Op("FractionalAvgPoolGrad", {shape, c.grad(0), c.output(1), c.output(2)}, c.CopyAttrs({"overlapping"})));
  return c.status();
}

Status AvgInputShape(ShapeContext& c) {
  c.set_output(0, PartialShape::UnknownOfRank(4));
  return absl::OkStatus();
}

MILLRACE_OP(FractionalMaxPool)
    .Summary("The largest element of each of the regions of random sizes.")
    .Input("value: T")
    .Output("output: T")
    .Output("row_pooling_sequence: int64")
    .Output("col_pooling_sequence: int64")
    .Attr("pooling_ratio: list(float) >= 4")
    .Attr("pseudo_random: bool = false")
    .Attr("overlapping: bool = false")
    .Attr("deterministic: bool = false")
    .Attr("seed: int = 0")
    .Attr("seed2: int = 0")
    .Attr("T: {float, double, int32, int64}")
    .Shape(FractionalPoolShape)
    .Gradient(FractionalMaxPoolGradient);

MILLRACE_OP(FractionalAvgPool)
    .Summary("The mean of each of the regions of random sizes.")
    .Input("value: T")
    .Output("output: T")
    .Output("row_pooling_sequence: int64")
    .Output("col_pooling_sequence: int64")
    .Attr("pooling_ratio: list(float) >= 4")
    .Attr("pseudo_random: bool = false")
    .Attr("overlapping: bool = false")
    .Attr("deterministic: bool = false")
    .Attr("seed: int = 0")
    .Attr("seed2: int = 0")
    .Attr("T: {float, double, int32, int64}")
    .Shape(FractionalPoolShape)
    .Gradient(FractionalAvgPoolGradient);

MILLRACE_OP(FractionalMaxPoolGrad)
    .Summary("The gradient of FractionalMaxPool.")
    .Input("orig_input: T")
    .Input("orig_output: T")
    .Input("out_backprop: T")
    .Input("row_pooling_sequence: int64")
    .Input("col_pooling_sequence: int64")
    .Output("output: T")
    .Attr("overlapping: bool = false")
    .Attr("T: {float, double, int32, int64}")
    .Shape(UnchangedShape)
    .NotDifferentiable();

MILLRACE_OP(FractionalAvgPoolGrad)
    .Summary("The gradient of FractionalAvgPool.")
    .Input("orig_input_tensor_shape: int64")
    .Input("out_backprop: T")
    .Input("row_pooling_sequence: int64")
    .Input("col_pooling_sequence: int64")
    .Output("output: T")
    .Attr("overlapping: bool = false")
    .Attr("T: {float, double, int32, int64}")
    .Shape(AvgInputShape)
    .NotDifferentiable();

uint64_t GroupsFor(int64_t regions) {
  return static_cast<uint64_t>((regions + random::kNumbersPerGroup - 1) / random::kNumbersPerGroup);
}

// Draws TensorFlow's numbers and leaves `stream` where TensorFlow's next sequence begins.
PoolingSequence DrawSequence(int64_t in, int64_t out, bool pseudo_random, Philox* stream) {
  PoolingSequence begins(out + 1);
  random::SingleNumbers numbers(*stream);
  const int64_t small = in / out;
  if (pseudo_random && in % out != 0) {
    // Regions of two sizes in an order that a random offset fixes.
    const double ratio = static_cast<double>(in) / static_cast<double>(out);
    const double limit = std::min((static_cast<double>(small) + 2) / ratio - 1,
                                  static_cast<double>(in + 1 - small) / ratio - static_cast<double>(out - 1));
    const double offset = numbers.Double() * limit;
    for (int64_t i = 1; i < out; ++i) {
      begins[i] = static_cast<int64_t>(std::ceil(ratio * (static_cast<double>(i) + offset))) - 1;
    }
    begins[out] = in;
    stream->Skip(1);
    return begins;
  }
  std::vector<int64_t> sizes(out, small);
  for (int64_t i = 0; i < in % out; ++i) ++sizes[i];
  if (in % out != 0) {
    for (int64_t i = 0; i + 1 < out; ++i) {
      std::swap(sizes[i], sizes[i + numbers() % static_cast<uint32_t>(out - i)]);
    }
    stream->Skip(GroupsFor(out));
  }
  for (int64_t i = 0; i < out; ++i) begins[i + 1] = begins[i] + sizes[i];
  return begins;
}

// Regions of an image. With overlapping, neighbours share the row and the column between them.
struct Regions {
  PoolingSequence rows, columns;
  bool overlapping = false;
  int64_t height = 0, width = 0, channels = 0;

  int64_t out_height() const { return static_cast<int64_t>(rows.size()) - 1; }
  int64_t out_width() const { return static_cast<int64_t>(columns.size()) - 1; }

  // Calls visit(o, i, size) for each output element o and input element i of its region.
  template <typename Visit>
  void ForEach(int64_t image, Visit&& visit) const {
    for (int64_t y = 0; y < out_height(); ++y) {
      const int64_t bottom = std::min(rows[y + 1] + (overlapping ? 1 : 0), height);
      for (int64_t x = 0; x < out_width(); ++x) {
        const int64_t right = std::min(columns[x + 1] + (overlapping ? 1 : 0), width);
        const int64_t size = (bottom - rows[y]) * (right - columns[x]);
        const int64_t o = ((image * out_height() + y) * out_width() + x) * channels;
        for (int64_t r = rows[y]; r < bottom; ++r) {
          for (int64_t q = columns[x]; q < right; ++q) {
            const int64_t i = ((image * height + r) * width + q) * channels;
            for (int64_t c = 0; c < channels; ++c) visit(o + c, i + c, size);
          }
        }
      }
    }
  }
};

template <bool kMax>
class FractionalPoolKernel : public Kernel {
 public:
  explicit FractionalPoolKernel(KernelInit& init) : source_(init, random::SourceKind::kSeedAttrs) {
    init.Attr("pooling_ratio", &ratio_);
    init.Attr("pseudo_random", &pseudo_random_);
    init.Attr("overlapping", &overlapping_);
    init.Attr("deterministic", &deterministic_);
    int64_t seed = 0, seed2 = 0;
    init.Attr("seed", &seed);
    init.Attr("seed2", &seed2);
    if (ratio_.size() != 4) {
      init.Fail(InvalidArgument("pooling_ratio field must specify 4 dimensions"));
    } else if (ratio_[0] != 1 || ratio_[3] != 1) {
      init.Fail(Unimplemented("Fractional pooling is not yet supported on the batch nor channel dimension."));
    } else if (!(ratio_[1] >= 1 && ratio_[2] >= 1)) {
      init.Fail(InvalidArgument("pooling_ratio cannot be smaller than 1"));
    } else if (!deterministic_ && (seed != 0 || seed2 != 0)) {
      init.Fail(InvalidArgument("Both seed and seed2 should be 0 if deterministic is false."));
    }
  }

  Status Compute(KernelContext& ctx) override {
    const Tensor& x = ctx.input(0);
    if (x.rank() != 4) return InvalidArgument("tensor_in must be 4-dimensional");
    Regions regions{.rows = {},
                    .columns = {},
                    .overlapping = overlapping_,
                    .height = x.dim(1),
                    .width = x.dim(2),
                    .channels = x.dim(3)};
    int64_t out[2];
    for (int d = 0; d < 2; ++d) {
      out[d] = static_cast<int64_t>(std::floor(static_cast<float>(x.dim(d + 1)) / ratio_[d + 1]));
      if (out[d] <= 0)
        return InvalidArgument("Pooling ratio is higher than input dimension size for dimension ", d + 1, ": ",
                               x.dim(d + 1));
      if (x.dim(d + 1) > std::numeric_limits<int32_t>::max()) return InvalidArgument("the input is too large");
    }
    MR_ASSIGN_OR_RETURN(Philox stream, Stream(ctx, GroupsFor(out[0]) + GroupsFor(out[1])));
    regions.rows = DrawSequence(x.dim(1), out[0], pseudo_random_, &stream);
    regions.columns = DrawSequence(x.dim(2), out[1], pseudo_random_, &stream);
    MR_ASSIGN_OR_RETURN(Tensor * y, ctx.AllocateOutput(0, Shape({x.dim(0), out[0], out[1], x.dim(3)})));
    for (int d = 0; d < 2; ++d) {
      MR_ASSIGN_OR_RETURN(Tensor * sequence, ctx.AllocateOutput(1 + d, Shape({out[d] + 1})));
      const PoolingSequence& begins = d == 0 ? regions.rows : regions.columns;
      std::copy(begins.begin(), begins.end(), sequence->data<int64_t>());
    }
    DispatchType(FractionalTypes{}, x.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      Pool<T>(ctx, regions, x.data<T>(), y);
    });
    return absl::OkStatus();
  }

 private:
  // The same stream in every run if deterministic.
  StatusOr<Philox> Stream(const KernelContext& ctx, uint64_t groups) {
    MutexLock lock(&mu_);
    if (!deterministic_ || !stream_) {
      MR_ASSIGN_OR_RETURN(stream_, source_.Take(ctx, 0, groups));
    }
    return *stream_;
  }

  template <typename T>
  static void Pool(KernelContext& ctx, const Regions& regions, const T* x, Tensor* out) {
    T* y = out->data<T>();
    std::fill_n(y, out->num_elements(), kMax ? std::numeric_limits<T>::lowest() : T(0));
    ctx.ParallelFor(out->dim(0), 1, [&](int64_t begin, int64_t end) {
      for (int64_t image = begin; image < end; ++image) {
        regions.ForEach(image,
                        [&](int64_t o, int64_t i, int64_t) { y[o] = kMax ? std::max(y[o], x[i]) : y[o] + x[i]; });
        if (!kMax) Divide(regions, image, y);
      }
    });
  }
  template <typename T>
  static void Divide(const Regions& regions, int64_t image, T* y) {
    int64_t last = -1;
    regions.ForEach(image, [&](int64_t o, int64_t, int64_t size) {
      if (o <= last) return;  // outputs come in order, each as often as its region has elements
      last = o;
      y[o] /= static_cast<T>(size);
    });
  }

  random::RandomSource source_;
  std::vector<float> ratio_;
  bool pseudo_random_ = false, overlapping_ = false, deterministic_ = false;
  Mutex mu_;
  std::optional<Philox> stream_ ABSL_GUARDED_BY(mu_);
};

template <bool kMax>
class FractionalPoolGradKernel : public Kernel {
 public:
  explicit FractionalPoolGradKernel(KernelInit& init) { init.Attr("overlapping", &overlapping_); }

  Status Compute(KernelContext& ctx) override {
    const int grad_input = kMax ? 2 : 1;
    const Tensor& grad = ctx.input(grad_input);
    MR_ASSIGN_OR_RETURN(const Shape shape, InputShape(ctx));
    if (shape.rank() != 4) return InvalidArgument("original input must be 4-dimensional");
    Regions regions{.rows = {},
                    .columns = {},
                    .overlapping = overlapping_,
                    .height = shape.dim(1),
                    .width = shape.dim(2),
                    .channels = shape.dim(3)};
    MR_ASSIGN_OR_RETURN(regions.rows, ReadSequence(ctx.input(grad_input + 1), shape.dim(1), "row"));
    MR_ASSIGN_OR_RETURN(regions.columns, ReadSequence(ctx.input(grad_input + 2), shape.dim(2), "col"));
    const Shape out({shape.dim(0), regions.out_height(), regions.out_width(), shape.dim(3)});
    if (grad.shape() != out || (kMax && ctx.input(1).shape() != out)) {
      return InvalidArgument("out_backprop and orig_output must be of shape ", out.ToString(), ", but out_backprop is ",
                             grad.shape().ToString());
    }
    MR_ASSIGN_OR_RETURN(Tensor * dx, ctx.AllocateOutput(0, shape));
    DispatchType(FractionalTypes{}, grad.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      std::fill_n(dx->data<T>(), dx->num_elements(), T(0));
      ctx.ParallelFor(shape.dim(0), 1, [&](int64_t begin, int64_t end) {
        for (int64_t image = begin; image < end; ++image) Spread<T>(ctx, regions, image, grad.data<T>(), dx->data<T>());
      });
    });
    return absl::OkStatus();
  }

 private:
  static StatusOr<Shape> InputShape(const KernelContext& ctx) {
    if (kMax) return ctx.input(0).shape();
    const Tensor& dims = ctx.input(0);
    if (dims.rank() != 1 || dims.dim(0) != 4) {
      return InvalidArgument("original input tensor shape must be 1-dimensional and 4 elements");
    }
    return Shape::Make(Shape::Dims(dims.data<int64_t>(), dims.data<int64_t>() + 4));
  }

  static StatusOr<PoolingSequence> ReadSequence(const Tensor& t, int64_t size, const char* name) {
    if (t.rank() != 1 || t.dim(0) < 2) {
      return InvalidArgument(name, "_pooling_sequence must be a vector of at least 2 elements");
    }
    PoolingSequence begins(t.data<int64_t>(), t.data<int64_t>() + t.dim(0));
    if (begins.front() < 0 || begins.back() > size || !std::is_sorted(begins.begin(), begins.end())) {
      return InvalidArgument(name, "_pooling_sequence must be ascending and within [0, ", size, "]");
    }
    return begins;
  }

  template <typename T>
  static void Spread(KernelContext& ctx, const Regions& regions, int64_t image, const T* grad, T* dx) {
    if constexpr (kMax) {
      // The gradient of a maximum goes to its first place in the region.
      const T* x = ctx.input(0).data<T>();
      const int64_t size = regions.out_height() * regions.out_width() * regions.channels, first = image * size;
      std::vector<int64_t> largest(size, -1);
      regions.ForEach(image, [&](int64_t o, int64_t i, int64_t) {
        int64_t& at = largest[o - first];
        if (at < 0 || x[at] < x[i]) at = i;
      });
      for (int64_t o = 0; o < size; ++o) {
        if (largest[o] >= 0) dx[largest[o]] += grad[first + o];
      }
    } else {
      // Shares of integers are summed before they are rounded.
      const int64_t size = regions.height * regions.width * regions.channels, first = image * size;
      std::vector<double> sums(size);
      regions.ForEach(image, [&](int64_t o, int64_t i, int64_t count) {
        sums[i - first] += static_cast<double>(grad[o]) / static_cast<double>(count);
      });
      std::transform(sums.begin(), sums.end(), dx + first, [](double sum) { return static_cast<T>(sum); });
    }
  }

  bool overlapping_ = false;
};

MILLRACE_KERNEL(FractionalMaxPool, kCpu, FractionalPoolKernel<true>);
MILLRACE_KERNEL(FractionalAvgPool, kCpu, FractionalPoolKernel<false>);
MILLRACE_KERNEL(FractionalMaxPoolGrad, kCpu, FractionalPoolGradKernel<true>);
MILLRACE_KERNEL(FractionalAvgPoolGrad, kCpu, FractionalPoolGradKernel<false>);

}  // namespace
}  // namespace millrace
