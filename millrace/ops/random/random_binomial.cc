// StatelessRandomBinomial: samples binomial distributions; each output uses its own part of the stream.
#include <cmath>
#include <limits>

#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/kernels/index_input.h"
#include "millrace/ops/random/distributions.h"
#include "millrace/ops/random/random_source.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/tensor/dispatch.h"

namespace millrace::random {
namespace {

using BinomialTypes = Types<half, float, double>;
using OutputTypes = Types<half, float, double, int32_t, int64_t>;

// Numbers of one stream in pairs, the second of each first, as TensorFlow's kernel uses them.
class Uniforms {
 public:
  explicit Uniforms(const Philox& stream) : stream_(stream) {}
  double operator()() {
    if (left_ == 0) {
      const Philox::Group x = stream_();
      pair_[0] = ToDouble(x[0], x[1]);
      pair_[1] = ToDouble(x[2], x[3]);
      left_ = 2;
    }
    return pair_[--left_];
  }

 private:
  Philox stream_;
  double pair_[2];
  int left_ = 0;
};

// For few expected successes: counts the geometric waiting times that fit.
double ByWaits(double trials, double p, Uniforms draw) {
  const double log_failure = std::log1p(-p);
  double passed = 0;
  for (double successes = 0;; ++successes) {
    passed += std::ceil(std::log(draw()) / log_failure);
    if (!(passed <= trials)) return successes;
  }
}

// ln k! less Stirling's formula for it.
double StirlingRest(double k) {
  static constexpr double kFirst[] = {0.0810614667953272,  0.0413406959554092, 0.0276779256849983, 0.02079067210376509,
                                      0.0166446911898211,  0.0138761288230707, 0.0118967099458917, 0.0104112652619720,
                                      0.00925546218271273, 0.00833056343336287};
  if (k <= 9) return kFirst[static_cast<int>(k)];
  const double n = k + 1;
  return (1.0 / 12 - (1.0 / 360 - 1.0 / 1260 / (n * n)) / (n * n)) / n;
}

// For many: Hoermann's transformed rejection with squeeze (BTRS). `p` is at most 1/2.
double ByRejection(double trials, double p, Uniforms draw) {
  const double deviation = std::sqrt(trials * p * (1 - p));
  const double b = 1.15 + 2.53 * deviation;
  const double a = -0.0873 + 0.0248 * b + 0.01 * p;
  const double centre = trials * p + 0.5;
  const double squeeze = 0.92 - 4.2 / b;
  const double odds = p / (1 - p);
  const double alpha = (2.83 + 5.1 / b) * deviation;
  const double mode = std::floor((trials + 1) * p);
  while (true) {
    const double u = draw() - 0.5;
    const double v = draw();
    const double us = 0.5 - std::abs(u);
    const double k = std::floor((2 * a / us + b) * u + centre);
    if (us >= 0.07 && v <= squeeze) return k;
    if (!(k >= 0 && k <= trials)) continue;
    const double bound = (mode + 0.5) * std::log((mode + 1) / (odds * (trials - mode + 1))) +
                         (trials + 1) * std::log((trials - mode + 1) / (trials - k + 1)) +
                         (k + 0.5) * std::log(odds * (trials - k + 1) / (k + 1)) + StirlingRest(mode) +
                         StirlingRest(trials - mode) - StirlingRest(k) - StirlingRest(trials - k);
    if (std::log(v * alpha / (a / (us * us) + b)) <= bound) return k;
  }
}

// Output number `index`, counting samples of one batch after another.
template <typename T>
double Binomial(T trials, T p, const Philox& stream, int64_t index) {
  const double n = static_cast<double>(trials);
  if (std::isnan(n) || std::isnan(static_cast<double>(p)) || std::isinf(n)) {
    return n < 0 ? 0 : std::numeric_limits<double>::quiet_NaN();
  }
  if (n <= 0 || static_cast<double>(p) <= 0) return 0;
  if (static_cast<double>(p) >= 1) return n;
  const bool mirrored = static_cast<double>(p) > 0.5;
  const T q = mirrored ? static_cast<T>(static_cast<T>(1.0f) - p) : p;
  const bool many = static_cast<double>(static_cast<T>(trials * q)) >= 10;
  Philox own = stream;
  own.Skip(static_cast<uint64_t>(index) * (many ? 256 : 42));
  const double successes =
      many ? ByRejection(n, static_cast<double>(q), Uniforms(own)) : ByWaits(n, static_cast<double>(q), Uniforms(own));
  return mirrored ? n - successes : successes;
}

template <typename U>
U ToOutput(double x) {
  if constexpr (std::is_integral_v<U>) {
    // Half of the range of U, which every whole double below fits in.
    constexpr double kLimit = static_cast<double>(std::numeric_limits<U>::max() / 2 + 1) * 2;
    return x >= -kLimit && x < kLimit ? static_cast<U>(x) : std::numeric_limits<U>::min();
  } else {
    return static_cast<U>(x);
  }
}

StatusOr<Shape> OutputShape(const Tensor& shape) {
  if (shape.rank() != 1)
    return InvalidArgument("Input shape should be a vector, got shape: ", shape.shape().ToString());
  Shape::Dims dims;
  for (int64_t i = 0; i < shape.num_elements(); ++i) dims.push_back(IntAt(shape, i));
  return Shape::Make(dims);
}

class StatelessRandomBinomialKernel : public Kernel {
 public:
  explicit StatelessRandomBinomialKernel(KernelInit& init) {
    if (!DispatchType(BinomialTypes(), init.input_type(2), [](auto) {})) FailDType(init, init.input_type(2));
  }

  Status Compute(KernelContext& ctx) override {
    const Tensor &counts = ctx.input(2), &probs = ctx.input(3);
    MR_ASSIGN_OR_RETURN(const Philox stream, StreamFromSeed(ctx.input(1)));
    MR_ASSIGN_OR_RETURN(const Shape shape, OutputShape(ctx.input(0)));
    MR_ASSIGN_OR_RETURN(const PartialShape joined, BroadcastShapes(counts.shape(), probs.shape()));
    const int samples_rank = shape.rank() - joined.rank();
    if (samples_rank < 0 ||
        !std::equal(joined.dims().begin(), joined.dims().end(), shape.dims().begin() + samples_rank)) {
      return InvalidArgument("Shape passed in must end with broadcasted shape: ", shape.ToString(),
                             " does not end with ", joined.ToString());
    }
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, shape));
    if (shape.num_elements() == 0) return absl::OkStatus();
    const int64_t batches = joined.num_elements(), samples = shape.num_elements() / batches;
    const std::vector<int64_t> count_at = Offsets(counts.shape(), joined.AsShape());
    const std::vector<int64_t> prob_at = Offsets(probs.shape(), joined.AsShape());
    DispatchType(BinomialTypes(), counts.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      DispatchType(OutputTypes(), out->dtype(), [&](auto out_tag) {
        using U = typename decltype(out_tag)::type;
        U* to = out->data<U>();
        ctx.ParallelFor(batches * samples, 256, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) {
            const int64_t batch = i / samples;
            to[(i % samples) * batches + batch] =
                ToOutput<U>(Binomial<T>(counts.data<T>()[count_at[batch]], probs.data<T>()[prob_at[batch]], stream, i));
          }
        });
      });
    });
    return absl::OkStatus();
  }

 private:
  // For each position of `whole`, the offset in a tensor that is broadcast to it.
  static std::vector<int64_t> Offsets(const Shape& part, const Shape& whole) {
    std::vector<int64_t> offsets(static_cast<size_t>(whole.num_elements()));
    const int missing = whole.rank() - part.rank();
    for (size_t i = 0; i < offsets.size(); ++i) {
      int64_t rest = static_cast<int64_t>(i), stride = 1;
      for (int d = whole.rank() - 1; d >= missing; --d) {
        const int64_t at = rest % whole.dim(d), size = part.dim(d - missing);
        rest /= whole.dim(d);
        if (size != 1) offsets[i] += at * stride;
        stride *= size;
      }
    }
    return offsets;
  }
};

Status BinomialShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(PartialShape shape, c.ShapeFromInput(0));
  c.set_output(0, std::move(shape));
  return absl::OkStatus();
}

MILLRACE_OP(StatelessRandomBinomial)
    .Summary("Samples binomial distributions with `counts` trials, determined by the seed.")
    .Input("shape: S")
    .Input("seed: Tseed")
    .Input("counts: T")
    .Input("probs: T")
    .Output("output: dtype")
    .Attr("S: {int32, int64}")
    .Attr("Tseed: {int32, int64} = DT_INT64")
    .Attr("T: {half, float, double, int32, int64} = DT_DOUBLE")
    .Attr("dtype: {half, float, double, int32, int64} = DT_INT64")
    .Shape(BinomialShape)
    .NotDifferentiable();
MILLRACE_KERNEL(StatelessRandomBinomial, kCpu, StatelessRandomBinomialKernel);

}  // namespace
}  // namespace millrace::random
