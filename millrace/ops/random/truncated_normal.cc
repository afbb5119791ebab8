// ParameterizedTruncatedNormal, StatelessParameterizedTruncatedNormal: normal numbers of given means and deviations
// between given bounds.
#include <algorithm>
#include <cmath>
#include <limits>

#include "millrace/graph/shape_inference.h"
#include "millrace/ops/kernels/elementwise.h"
#include "millrace/ops/kernels/index_input.h"
#include "millrace/ops/random/distributions.h"
#include "millrace/ops/random/random_kernel.h"
#include "millrace/ops/random/random_source.h"

namespace millrace::random {
namespace {

// After this many consecutive rejections the next number is accepted.
constexpr int64_t kMaxTries = 1000;
// Numbers that share parameters are drawn in batches of this size.
constexpr int64_t kBatch = 100;

template <typename T>
struct Bounds {
  T mean, deviation, low, high;

  Status Check() const {
    const auto l = static_cast<double>(low), h = static_cast<double>(high), d = static_cast<double>(deviation);
    if (d > 0 && l < h && (std::isfinite(l) || std::isfinite(h))) return absl::OkStatus();
    return InvalidArgument("Invalid parameters: mean ", static_cast<double>(mean), ", deviation ", d, ", bounds ", l,
                           " and ", h);
  }
};

constexpr const char* kParameterNames[] = {"means", "stdevs", "minvals", "maxvals"};

// Fills out[0, n) from the stream. Each step is rounded to T, as TensorFlow computes in it.
template <typename T>
class TruncatedSampler {
 public:
  using C = ComputeType<T>;
  TruncatedSampler(Bounds<T> b, Philox* stream) : stream_(stream) {
    C low = static_cast<C>(b.low), high = static_cast<C>(b.high);
    mean_ = static_cast<C>(b.mean);
    deviation_ = static_cast<C>(b.deviation);
    // One bound alone is the lower one, and two beyond the mean are above it.
    if ((std::isinf(low) && low < 0) || high < mean_) {
      std::swap(low, high);
      deviation_ = -deviation_;
    }
    low_ = R(R(low - mean_) / deviation_);
    high_ = R(R(high - mean_) / deviation_);
  }

  Status Fill(T* out, int64_t n) {
    constexpr C kInside = C(1.3);
    const C inside = R(kInside), root = R(std::sqrt(R(R(low_ * low_) + 4)));
    const C cutoff = R(R(2 * R(std::exp(R(R(0.5) + R(R(low_ * R(low_ - root)) / 4))))) / R(low_ + root));
    const C width = R(high_ - low_);
    if ((low_ < -inside && high_ >= 0) || (high_ > inside && low_ <= 0)) return FromNormal(out, n);
    if (width < cutoff) {
      FromUniform(width, out, n);
    } else {
      FromExponential(root, out, n);
    }
    return absl::OkStatus();
  }

 private:
  static constexpr int kSize = Uniform<T>::kPerGroup;
  static C R(C x) { return static_cast<C>(static_cast<T>(x)); }
  T Scaled(C z) const { return static_cast<T>(R(R(z * deviation_) + mean_)); }

  Status FromNormal(T* out, int64_t n) {
    int64_t tries = 0;
    T z[kSize];
    while (true) {
      Normal<T>()((*stream_)().data(), z);
      for (const T drawn : z) {
        const C value = static_cast<C>(drawn);
        if (value >= low_ && value <= high_) {
          *out++ = Scaled(value);
          if (--n == 0) return absl::OkStatus();
          tries = 0;
        } else if (++tries > kMaxTries) {
          return Internal("no normal number was found between the bounds ", low_, " and ", high_, " in ", tries,
                          " tries");
        }
      }
    }
  }

  void FromUniform(C width, T* out, int64_t n) {
    const C most = low_ < 0 ? C(0) : R(low_ * low_);
    int64_t tries = 0;
    T place[kSize], chance[kSize];
    while (true) {
      Uniform<T>()((*stream_)().data(), place);
      Uniform<T>()((*stream_)().data(), chance);
      for (int i = 0; i < kSize; ++i) {
        const C z = R(R(static_cast<C>(place[i]) * width) + low_);
        const C g = R(R(most - R(z * z)) / 2);
        if (static_cast<C>(chance[i]) <= R(std::exp(g)) || tries + 1 >= kMaxTries) {
          *out++ = Scaled(z);
          if (--n == 0) return;
          tries = 0;
        } else {
          ++tries;
        }
      }
    }
  }

  void FromExponential(C root, T* out, int64_t n) {
    const C alpha = R(R(low_ + root) / 2);
    if (!std::isfinite(low_)) {  // as for a mean that is not finite: no number is ever accepted, and the last one is
      std::fill(out, out + n, Scaled(R(R(C(1) / alpha) + low_)));
      return;
    }
    int64_t tries = 0;
    T numbers[kSize];
    while (true) {
      Uniform<T>()((*stream_)().data(), numbers);
      for (int i = 0; i < kSize; i += 2) {
        const C z = R(R(R(-R(std::log(static_cast<C>(numbers[i])))) / alpha) + low_);
        const C x = low_ < alpha ? R(alpha - z) : R(low_ - alpha);
        const C g = R(std::exp(R(R(R(-x) * x) / 2)));
        if ((static_cast<C>(numbers[i + 1]) <= g && z < high_) || tries + 1 >= kMaxTries) {
          *out++ = Scaled(z);
          if (--n == 0) return;
          tries = 0;
        } else {
          ++tries;
        }
      }
    }
  }

  Philox* const stream_;
  C mean_ = 0, deviation_ = 1, low_ = 0, high_ = 0;
};

using SampledTypes = Types<half, float, double>;

StatusOr<Shape> ShapeInput(const Tensor& input) {
  if (input.rank() != 1)
    return InvalidArgument("Input shape should be a vector, got shape: ", input.shape().ToString());
  if (input.num_elements() > Shape::kMaxRank)
    return InvalidArgument("the shape has too many dimensions: ", input.num_elements());
  Shape::Dims dims;
  for (int64_t i = 0; i < input.num_elements(); ++i) dims.push_back(IntAt(input, i));
  return Shape::Make(dims);
}

class ParameterizedTruncatedNormalKernel : public Kernel {
 public:
  explicit ParameterizedTruncatedNormalKernel(KernelInit& init) : source_(init, SourceKind::kSeedAttrs) {
    if (!DispatchType(SampledTypes{}, init.output_type(0), [](auto) {})) FailDType(init, init.output_type(0));
  }

  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const Shape shape, ShapeInput(ctx.input(0)));
    if (shape.rank() == 0) return InvalidArgument("Shape tensor must not be empty, got ", ctx.input(0).DebugString());
    int64_t batches = shape.dim(0), samples = shape.Product(1, shape.rank());
    bool shared = true;
    for (int i = 1; i <= 4; ++i) {
      const Tensor& t = ctx.input(i);
      if (t.rank() > 1)
        return InvalidArgument("Input ", kParameterNames[i - 1],
                               " should be a scalar or vector, got shape: ", t.shape().ToString());
      if (t.num_elements() != 1 && t.num_elements() != batches) {
        return InvalidArgument("Input ", kParameterNames[i - 1],
                               " should have length 1 or shape[0], got shape: ", t.shape().ToString());
      }
      shared &= t.num_elements() == 1;
    }
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, shape));
    const int64_t total = shape.num_elements();
    if (total == 0) return absl::OkStatus();
    if (shared) {
      samples = kBatch;
      batches = (total + kBatch - 1) / kBatch;
    }
    MR_ASSIGN_OR_RETURN(Philox stream, source_.Take(ctx, 1,
                                                    static_cast<uint64_t>(batches) * 2 * kMaxTries *
                                                        (static_cast<uint64_t>(samples) + 3) / 4));
    Status status;
    DispatchType(SampledTypes{}, out->dtype(),
                 [&](auto tag) { status = Draw<typename decltype(tag)::type>(ctx, batches, samples, &stream, out); });
    return status;
  }

 private:
  // One batch after another: where one starts in the stream depends on those before it.
  template <typename T>
  static Status Draw(const KernelContext& ctx, int64_t batches, int64_t samples, Philox* stream, Tensor* out) {
    for (int64_t b = 0; b < batches; ++b) {
      const auto at = [&](int i) {
        const Tensor& t = ctx.input(i);
        return t.data<T>()[t.num_elements() == 1 ? 0 : b];
      };
      const Bounds<T> bounds{at(1), at(2), at(3), at(4)};
      MR_RETURN_IF_ERROR(bounds.Check());
      const int64_t begin = b * samples, end = std::min(begin + samples, out->num_elements());
      MR_RETURN_IF_ERROR(TruncatedSampler<T>(bounds, stream).Fill(out->data<T>() + begin, end - begin));
    }
    return absl::OkStatus();
  }

  RandomSource source_;
};

// The parameters are broadcast to each other; the shape ends with theirs.
class StatelessTruncatedKernel : public Kernel {
 public:
  explicit StatelessTruncatedKernel(KernelInit& init) {
    if (!DispatchType(SampledTypes{}, init.output_type(0), [](auto) {})) FailDType(init, init.output_type(0));
  }

  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const Shape shape, ShapeInput(ctx.input(0)));
    PartialShape common = PartialShape::Scalar();
    for (int i = 2; i <= 5; ++i) {
      MR_ASSIGN_OR_RETURN(common, BroadcastShapes(common, PartialShape(ctx.input(i).shape().dims())));
    }
    const int lead = shape.rank() - common.rank();
    bool fits = lead >= 0;
    for (int d = 0; fits && d < common.rank(); ++d) fits = shape.dim(lead + d) == common.dim(d);
    if (!fits) {
      return InvalidArgument("Shape passed in must end with broadcasted shape: ", shape.ToString(),
                             " does not end with ", common.ToString());
    }
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, shape));
    if (shape.num_elements() == 0) return absl::OkStatus();
    MR_ASSIGN_OR_RETURN(Philox stream, StreamFromSeed(ctx.input(1)));
    Status status;
    DispatchType(SampledTypes{}, out->dtype(), [&](auto tag) {
      status = Draw<typename decltype(tag)::type>(ctx, shape.Product(0, lead), shape.Product(lead, shape.rank()),
                                                  common, &stream, out);
    });
    return status;
  }

 private:
  // Element `at` of the common shape, of a parameter that is broadcast to it.
  template <typename T>
  static T Parameter(const Tensor& t, const PartialShape& common, int64_t at) {
    int64_t offset = 0, stride = 1;
    for (int d = 1; d <= common.rank(); ++d) {
      const int64_t n = common.dim(common.rank() - d), place = at % n;
      at /= n;
      if (d > t.rank()) continue;
      const int64_t own = t.dim(t.rank() - d);
      if (own > 1) offset += place * stride;
      stride *= own;
    }
    return t.data<T>()[offset];
  }

  template <typename T>
  static Status Draw(const KernelContext& ctx, int64_t samples, int64_t batches, const PartialShape& common,
                     Philox* stream, Tensor* out) {
    std::vector<T> drawn(static_cast<size_t>(samples));
    for (int64_t b = 0; b < batches; ++b) {
      const auto at = [&](int i) { return Parameter<T>(ctx.input(i), common, b); };
      const Bounds<T> bounds{at(2), at(3), at(4), at(5)};
      MR_RETURN_IF_ERROR(bounds.Check());
      MR_RETURN_IF_ERROR(TruncatedSampler<T>(bounds, stream).Fill(drawn.data(), samples));
      for (int64_t i = 0; i < samples; ++i) out->data<T>()[i * batches + b] = drawn[static_cast<size_t>(i)];
    }
    return absl::OkStatus();
  }
};

}  // namespace

MILLRACE_OP(StatelessParameterizedTruncatedNormal)
    .Input("shape: S")
    .Input("seed: Tseed")
    .Input("means: dtype")
    .Input("stddevs: dtype")
    .Input("minvals: dtype")
    .Input("maxvals: dtype")
    .Output("output: dtype")
    .Attr("S: {int32, int64}")
    .Attr("Tseed: {int32, int64} = DT_INT64")
    .Attr("dtype: {half, float, double}")
    .Shape(RandomShape)
    .NotDifferentiable()
    .Summary("Truncated normal random numbers with given parameters and bounds, determined by the seed.");
MILLRACE_KERNEL(StatelessParameterizedTruncatedNormal, kCpu, StatelessTruncatedKernel);
MILLRACE_OP(ParameterizedTruncatedNormal)
    .Input("shape: T")
    .Input("means: dtype")
    .Input("stdevs: dtype")
    .Input("minvals: dtype")
    .Input("maxvals: dtype")
    .Output("output: dtype")
    .Attr("seed: int = 0")
    .Attr("seed2: int = 0")
    .Attr("dtype: {half, bfloat16, float, double}")
    .Attr("T: {int32, int64}")
    .Stateful()
    .Shape(RandomShape)
    .NotDifferentiable()
    .Trait(OpTrait::kRandom)
    .Summary("Truncated normal random numbers with given parameters and bounds per batch.");
MILLRACE_KERNEL(ParameterizedTruncatedNormal, kCpu, ParameterizedTruncatedNormalKernel);

}  // namespace millrace::random
