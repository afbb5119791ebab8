// Multinomial: samples classes by their unnormalised log-probabilities.
#include <algorithm>
#include <cmath>
#include <vector>

#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/random/distributions.h"
#include "millrace/ops/random/random_source.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/tensor/dispatch.h"

namespace millrace::random {
namespace {

// Unnormalised cumulative probabilities of one row; non-finite classes have probability 0.
template <typename T>
void Accumulate(const T* logits, int64_t classes, std::vector<double>* sums) {
  double greatest = std::numeric_limits<double>::lowest();
  for (int64_t i = 0; i < classes; ++i) {
    const double logit = static_cast<double>(logits[i]);
    if (std::isfinite(logit)) greatest = std::max(greatest, logit);
  }
  double sum = 0;
  for (int64_t i = 0; i < classes; ++i) {
    const double logit = static_cast<double>(logits[i]);
    if (std::isfinite(logit)) sum += std::exp(logit - greatest);
    (*sums)[i] = sum;
  }
}

template <typename T, typename Out>
void Draw(const Tensor& logits, const Philox& stream, int64_t samples, Tensor* output) {
  const int64_t rows = logits.dim(0), classes = logits.dim(1);
  std::vector<double> sums(classes);
  SingleNumbers numbers(stream);
  Out* out = output->data<Out>();
  for (int64_t row = 0; row < rows; ++row) {
    Accumulate(logits.data<T>() + row * classes, classes, &sums);
    for (int64_t i = 0; i < samples; ++i) {
      const double wanted = numbers.Double() * sums.back();
      const auto found = std::upper_bound(sums.begin(), sums.end(), wanted);
      *out++ = static_cast<Out>(std::min<int64_t>(found - sums.begin(), classes - 1));
    }
  }
}

class MultinomialKernel : public Kernel {
 public:
  MultinomialKernel(KernelInit& init, SourceKind source) : source_(init, source) {
    const bool known = DispatchType(FloatTypes{}, init.input_type(0), [&](auto tag) {
      using T = typename decltype(tag)::type;
      draw_ = init.output_type(0) == DType::kInt32 ? &Draw<T, int32_t> : &Draw<T, int64_t>;
    });
    if (!known) FailDType(init, init.input_type(0));
  }

  Status Compute(KernelContext& ctx) override {
    const Tensor& logits = ctx.input(0);
    const Tensor& count = ctx.input(1);
    if (logits.rank() != 2) {
      return InvalidArgument("logits must be a matrix, but have shape ", logits.shape().ToString());
    }
    if (count.rank() != 0) {
      return InvalidArgument("num_samples must be a scalar, but has shape ", count.shape().ToString());
    }
    const int64_t samples = count.scalar<int32_t>();
    if (samples < 0) return InvalidArgument("num_samples must not be negative, but is ", samples);
    if (logits.dim(1) < 1) return InvalidArgument("num_classes should be positive, got ", logits.dim(1));
    MR_ASSIGN_OR_RETURN(const Shape shape, Shape::Make({logits.dim(0), samples}));
    MR_ASSIGN_OR_RETURN(Tensor* const output, ctx.AllocateOutput(0, shape));
    if (output->num_elements() == 0) return absl::OkStatus();
    const uint64_t reserved = static_cast<uint64_t>((samples + 3) / 4 * 4 * logits.dim(0));
    MR_ASSIGN_OR_RETURN(const Philox stream, source_.Take(ctx, 2, reserved * kGroupsPerOutput));
    draw_(logits, stream, samples, output);
    return absl::OkStatus();
  }

 private:
  RandomSource source_;
  void (*draw_)(const Tensor&, const Philox&, int64_t, Tensor*) = nullptr;
};

template <SourceKind source>
class MultinomialKernelOf : public MultinomialKernel {
 public:
  explicit MultinomialKernelOf(KernelInit& init) : MultinomialKernel(init, source) {}
};

Status MultinomialShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape logits, c.WithRank(0, 2));
  MR_RETURN_IF_ERROR(c.WithRank(1, 0).status());
  const Tensor* const count = c.constant(1);
  const int64_t samples =
      count == nullptr || count->num_elements() != 1 ? PartialShape::kUnknown : count->scalar<int32_t>();
  if (count != nullptr && samples < 0) {
    return InvalidArgument("num_samples must not be negative, but is ", samples);
  }
  c.set_output(0, PartialShape({logits.dim(0), samples}));
  return absl::OkStatus();
}

MILLRACE_OP(Multinomial)
    .Input("logits: T")
    .Input("num_samples: int32")
    .Output("output: output_dtype")
    .Attr("seed: int = 0")
    .Attr("seed2: int = 0")
    .Attr("T: realnumbertype")
    .Attr("output_dtype: {int32, int64} = DT_INT64")
    .Stateful()
    .Shape(MultinomialShape)
    .NotDifferentiable()
    .Trait(OpTrait::kRandom)
    .Summary("Samples classes for each row of unnormalised log-probabilities.");

MILLRACE_OP(StatelessMultinomial)
    .Input("logits: T")
    .Input("num_samples: int32")
    .Input("seed: Tseed")
    .Output("output: output_dtype")
    .Attr("T: realnumbertype")
    .Attr("Tseed: {int32, int64} = DT_INT64")
    .Attr("output_dtype: {int32, int64} = DT_INT64")
    .Shape(MultinomialShape)
    .NotDifferentiable()
    .Summary("Multinomial, determined by the seed only.");

MILLRACE_KERNEL(Multinomial, kCpu, MultinomialKernelOf<SourceKind::kSeedAttrs>);
MILLRACE_KERNEL(StatelessMultinomial, kCpu, MultinomialKernelOf<SourceKind::kSeedInput>);

}  // namespace
}  // namespace millrace::random
