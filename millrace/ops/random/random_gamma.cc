// RandomGamma, StatelessRandomGammaV2, StatelessRandomGammaV3, RandomPoisson, RandomPoissonV2, StatelessRandomPoisson:
// rejection sampling; each output uses its own part of the stream.
#include <cmath>
#include <limits>

#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/kernels/elementwise.h"
#include "millrace/ops/kernels/index_input.h"
#include "millrace/ops/random/distributions.h"
#include "millrace/ops/random/random_source.h"

namespace millrace::random {
namespace {

// Uniform and normal numbers of one stream, each in pairs with the second first, as TensorFlow's kernels use them.
class Draws {
 public:
  explicit Draws(const Philox& stream) : stream_(stream) {}
  double Uniform() {
    if (uniforms_left_ == 0) {
      const Philox::Group x = stream_();
      uniforms_[0] = ToDouble(x[0], x[1]);
      uniforms_[1] = ToDouble(x[2], x[3]);
      uniforms_left_ = 2;
    }
    return uniforms_[--uniforms_left_];
  }
  double Normal() {
    if (normals_left_ == 0) {
      const Philox::Group x = stream_();
      BoxMuller(ToDouble(x[0], x[1]), ToDouble(x[2], x[3]), normals_);
      normals_left_ = 2;
    }
    return normals_[--normals_left_];
  }

 private:
  Philox stream_;
  double uniforms_[2], normals_[2];
  int uniforms_left_ = 0, normals_left_ = 0;
};

// Marsaglia and Tsang's method. NaN for a NaN shape.
double Gamma(double alpha, Draws draws) {
  if (alpha == 1.0) return -std::log1p(-draws.Uniform());
  if (!(alpha > 0) || !std::isfinite(alpha)) return std::numeric_limits<double>::quiet_NaN();
  const bool small = alpha < 1;
  const double d = alpha + (small ? 2.0 / 3 : -1.0 / 3), c = 1.0 / 3 / std::sqrt(d);
  while (true) {
    const double x = draws.Normal();
    double v = 1 + c * x;
    if (v <= 0) continue;
    v = v * v * v;
    const double u = draws.Uniform();
    if (u >= 1 - 0.0331 * (x * x) * (x * x) && std::log(u) >= 0.5 * x * x + d * (1 - v + std::log(v))) continue;
    double result = d * v;
    if (small) result *= std::pow(draws.Uniform(), 1 / alpha);
    return result;
  }
}

// Knuth's method for small rates, Hoermann's transformed rejection for others. NaN for an invalid rate.
double Poisson(double rate, double greatest, Draws draws) {
  if (!std::isfinite(rate) || rate < 0) return std::numeric_limits<double>::quiet_NaN();
  if (rate < 10) {
    const double least = std::exp(-rate);
    double product = 1, x = 0;
    while (true) {
      product *= draws.Uniform();
      if (product <= least && x <= greatest) return x;
      x += 1;
    }
  }
  const double log_rate = std::log(rate), b = 0.931 + 2.53 * std::sqrt(rate), a = -0.059 + 0.02483 * b,
               inverse_alpha = 1.1239 + 1.1328 / (b - 3.4);
  // Bounded, because no sample would ever be accepted if the type cannot represent likely ones.
  for (int tries = 0; tries < 100000; ++tries) {
    const double u = draws.Uniform() - 0.5, v = draws.Uniform();
    const double shifted = 0.5 - std::fabs(u);
    const double k = std::floor((2 * a / shifted + b) * u + rate + 0.43);
    if (k > greatest) continue;
    if (shifted >= 0.07 && v <= 0.9277 - 3.6224 / (b - 2)) return k;
    if (k < 0 || (shifted < 0.013 && v > shifted)) continue;
    const double s = std::log(v * inverse_alpha / (a / (shifted * shifted) + b));
    if (s <= -rate + k * log_rate - std::lgamma(k + 1)) return k;
  }
  return greatest;
}

using GammaTypes = Types<half, float, double, int32_t, int64_t, bfloat16>;

double ParameterAt(const Tensor& t, int64_t i) {
  double value = 0;
  DispatchType(GammaTypes{}, t.dtype(),
               [&](auto tag) { value = static_cast<double>(t.data<typename decltype(tag)::type>()[i]); });
  return value;
}

// The output has the given shape followed by that of the parameter; if the seed is an input, the given shape already
// includes it.
class RejectionKernel : public Kernel {
 public:
  RejectionKernel(KernelInit& init, SourceKind source, bool is_poisson)
      : source_(init, source), is_poisson_(is_poisson), is_whole_(source != SourceKind::kSeedAttrs) {
    parameter_ = 1 + (source == SourceKind::kSeedAttrs ? 0 : source_.num_inputs());
    if (!DispatchType(GammaTypes{}, init.input_type(parameter_), [](auto) {}))
      FailDType(init, init.input_type(parameter_));
    if (!DispatchType(GammaTypes{}, init.output_type(0), [](auto) {})) FailDType(init, init.output_type(0));
  }

  Status Compute(KernelContext& ctx) override {
    const Tensor &lead = ctx.input(0), &parameter = ctx.input(parameter_);
    if (lead.rank() > 1) return InvalidArgument("shape must be a vector, but has shape ", lead.shape().ToString());
    Shape::Dims dims;
    if (lead.num_elements() + parameter.rank() > Shape::kMaxRank)
      return InvalidArgument("the shape has too many dimensions");
    for (int64_t i = 0; i < lead.num_elements(); ++i) dims.push_back(IntAt(lead, i));
    MR_ASSIGN_OR_RETURN(const Shape samples_shape, Shape::Make(dims));
    const absl::Span<const int64_t> behind = parameter.shape().dims();
    if (!is_whole_) {
      dims.insert(dims.end(), behind.begin(), behind.end());
    } else if (dims.size() < behind.size() || !std::equal(behind.begin(), behind.end(), dims.end() - behind.size())) {
      return InvalidArgument("Shape passed in must end with broadcasted shape: ", samples_shape.ToString(),
                             " does not end with ", parameter.shape().ToString());
    }
    MR_ASSIGN_OR_RETURN(const Shape shape, Shape::Make(dims));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, shape));
    const int64_t total = shape.num_elements(), parameters = parameter.num_elements();
    if (total == 0) return absl::OkStatus();
    const int64_t samples = total / parameters;
    MR_ASSIGN_OR_RETURN(const Philox stream, source_.Take(ctx, 1, static_cast<uint64_t>(total) * kGroupsPerOutput));
    DispatchType(GammaTypes{}, out->dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      const double greatest = static_cast<double>(std::numeric_limits<T>::max());
      ctx.ParallelFor(total, 256, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t at = i / samples;
          Philox own = stream;
          own.Skip(static_cast<uint64_t>(i) * kGroupsPerOutput);
          const double p = ParameterAt(parameter, at);
          double value = is_poisson_ ? Poisson(p, greatest, Draws(own)) : Gamma(p, Draws(own));
          if (std::is_integral_v<T> && std::isnan(value)) value = 0;
          out->data<T>()[i % samples * parameters + at] = static_cast<T>(value);
        }
      });
    });
    return absl::OkStatus();
  }

 private:
  RandomSource source_;
  const bool is_poisson_;
  const bool is_whole_;
  int parameter_ = 1;
};

template <SourceKind source, bool is_poisson>
class RejectionKernelOf : public RejectionKernel {
 public:
  explicit RejectionKernelOf(KernelInit& init) : RejectionKernel(init, source, is_poisson) {}
};

Status WholeShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(PartialShape shape, c.ShapeFromInput(0));
  c.set_output(0, std::move(shape));
  return absl::OkStatus();
}
Status BehindShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(PartialShape lead, c.ShapeFromInput(0));
  const PartialShape& behind = c.input(1);
  if (!lead.known_rank() || !behind.known_rank()) return absl::OkStatus();
  for (int64_t d : behind.dims()) lead.AddDim(d);
  c.set_output(0, std::move(lead));
  return absl::OkStatus();
}

// By the gradient of a sample in its alpha, summed over samples.
template <int parameter>
Status GammaGradient(GradientContext& c) {
  const Endpoint alpha = c.input(parameter), sample = c.output(0);
  const Endpoint lead_rank = c.Sub(c.Rank(sample), c.Rank(alpha));
  const Endpoint ones = c.Op("Fill", {c.Reshape(lead_rank, c.Ints({1})), c.Scalar<int32_t>(1)});
  const Endpoint wide = c.Reshape(alpha, c.Op("ConcatV2", {ones, c.Shape(alpha), c.Scalar<int32_t>(0)}));
  const Endpoint slope = c.Op("RandomGammaGrad", {wide, sample});
  const Endpoint axes = c.Op("Range", {c.Scalar<int32_t>(0), lead_rank, c.Scalar<int32_t>(1)});
  c.set_input_grad(parameter, c.Op("Sum", {c.Mul(c.grad(), slope), axes}));
  return c.status();
}

}  // namespace

MILLRACE_OP(RandomGamma)
    .Input("shape: S")
    .Input("alpha: T")
    .Output("output: T")
    .Attr("seed: int = 0")
    .Attr("seed2: int = 0")
    .Attr("S: {int32, int64}")
    .Attr("T: {half, float, double}")
    .Stateful()
    .Shape(BehindShape)
    .Gradient(GammaGradient<1>)
    .Trait(OpTrait::kRandom)
    .Summary("Samples gamma distributions of scale 1, for each alpha.");
MILLRACE_OP(StatelessRandomGammaV2)
    .Input("shape: T")
    .Input("seed: Tseed")
    .Input("alpha: dtype")
    .Output("output: dtype")
    .Attr("dtype: {half, float, double}")
    .Attr("T: {int32, int64}")
    .Attr("Tseed: {int32, int64} = DT_INT64")
    .Shape(WholeShape)
    .Gradient(GammaGradient<2>)
    .Summary("RandomGamma, determined by the seed only.");
MILLRACE_OP(StatelessRandomGammaV3)
    .Input("shape: shape_dtype")
    .Input("key: uint64")
    .Input("counter: uint64")
    .Input("alg: int32")
    .Input("alpha: dtype")
    .Output("output: dtype")
    .Attr("dtype: {half, float, double}")
    .Attr("shape_dtype: {int32, int64} = DT_INT32")
    .Shape(WholeShape)
    .Gradient(GammaGradient<4>)
    .Summary("RandomGamma, determined by key and counter only.");
MILLRACE_OP(RandomPoisson)
    .Input("shape: S")
    .Input("rate: dtype")
    .Output("output: dtype")
    .Attr("seed: int = 0")
    .Attr("seed2: int = 0")
    .Attr("S: {int32, int64}")
    .Attr("dtype: {half, float, double}")
    .Stateful()
    .Shape(BehindShape)
    .NotDifferentiable()
    .Trait(OpTrait::kRandom)
    .Summary("Samples Poisson distributions, for each rate.");
MILLRACE_OP(RandomPoissonV2)
    .Input("shape: S")
    .Input("rate: R")
    .Output("output: dtype")
    .Attr("seed: int = 0")
    .Attr("seed2: int = 0")
    .Attr("S: {int32, int64}")
    .Attr("R: {half, float, double, int32, int64} = DT_DOUBLE")
    .Attr("dtype: {half, float, double, int32, int64} = DT_INT64")
    .Stateful()
    .Shape(BehindShape)
    .NotDifferentiable()
    .Trait(OpTrait::kRandom)
    .Summary("Samples Poisson distributions, for each rate.");
MILLRACE_OP(StatelessRandomPoisson)
    .Input("shape: T")
    .Input("seed: Tseed")
    .Input("lam: Rtype")
    .Output("output: dtype")
    .Attr("Rtype: {half, float, double, int32, int64}")
    .Attr("dtype: {half, float, double, int32, int64}")
    .Attr("T: {int32, int64}")
    .Attr("Tseed: {int32, int64} = DT_INT64")
    .Shape(WholeShape)
    .NotDifferentiable()
    .Summary("RandomPoissonV2, determined by the seed only.");

MILLRACE_KERNEL(RandomGamma, kCpu, RejectionKernelOf<SourceKind::kSeedAttrs, false>);
MILLRACE_KERNEL(StatelessRandomGammaV2, kCpu, RejectionKernelOf<SourceKind::kSeedInput, false>);
MILLRACE_KERNEL(StatelessRandomGammaV3, kCpu, RejectionKernelOf<SourceKind::kKeyInputs, false>);
MILLRACE_KERNEL(RandomPoisson, kCpu, RejectionKernelOf<SourceKind::kSeedAttrs, true>);
MILLRACE_KERNEL(RandomPoissonV2, kCpu, RejectionKernelOf<SourceKind::kSeedAttrs, true>);
MILLRACE_KERNEL(StatelessRandomPoisson, kCpu, RejectionKernelOf<SourceKind::kSeedInput, true>);

}  // namespace millrace::random
