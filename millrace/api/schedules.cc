#include "millrace/api/schedules.h"

#include <algorithm>
#include <cmath>

#include "millrace/api/operators.h"
#include "millrace/api/reductions.h"

namespace millrace::schedules {
namespace {

// step / decay_steps as a float; rounded down if `staircase`.
Output Progress(const Scope& s, const Input& step, double decay_steps, bool staircase) {
  if (!(decay_steps > 0)) {
    s.UpdateStatus(
        InvalidArgument("schedule ", s.prefix(), ": decay_steps is ", decay_steps, ", and must be positive"));
  }
  const Output t = api_internal::Cast(s, step.In(s, DType::kFloat, "step"), DType::kFloat) / decay_steps;
  return staircase ? Op(s, "Floor", {t}) : t;
}

}  // namespace

Output Exponential(const Scope& scope, const Input& step, const DecayOptions& options) {
  const Scope s = scope.ForComposite("exponential_decay");
  return Op(s, "Pow", {options.decay, Progress(s, step, options.decay_steps, options.staircase)}) * options.rate;
}

Output NaturalExp(const Scope& scope, const Input& step, const DecayOptions& options) {
  const Scope s = scope.ForComposite("natural_exp_decay");
  return Op(s, "Exp", {Progress(s, step, options.decay_steps, options.staircase) * -options.decay}) * options.rate;
}

Output InverseTime(const Scope& scope, const Input& step, const DecayOptions& options) {
  const Scope s = scope.ForComposite("inverse_time_decay");
  return options.rate / (Progress(s, step, options.decay_steps, options.staircase) * options.decay + 1);
}

Output Polynomial(const Scope& scope, const Input& step, const PolynomialOptions& options) {
  const Scope s = scope.ForComposite("polynomial_decay");
  Output t = Progress(s, step, options.decay_steps, false);
  if (options.cycle) {
    // The period is extended to the next multiple of decay_steps; at step 0 it is one.
    t = t / Op(s, "Maximum", {Op(s, "Ceil", {t}), 1});
  } else {
    t = Op(s, "Minimum", {t, 1});
  }
  return Op(s, "Pow", {1 - t, options.power}) * (options.rate - options.end_rate) + options.end_rate;
}

Output Cosine(const Scope& scope, const Input& step, const CosineOptions& options) {
  const Scope s = scope.ForComposite("cosine_decay");
  const Output t = Op(s, "Minimum", {Progress(s, step, options.decay_steps, false), 1});
  const Output cosine = (Op(s, "Cos", {t * M_PI}) + 1) * 0.5;
  return (cosine * (1 - options.alpha) + options.alpha) * options.rate;
}

Output PiecewiseConstant(const Scope& scope, const Input& step, const std::vector<int64_t>& boundaries,
                         const std::vector<float>& values) {
  const Scope s = scope.ForComposite("piecewise_constant");
  if (boundaries.size() + 1 != values.size()) {
    s.UpdateStatus(InvalidArgument("schedule ", s.prefix(), ": ", boundaries.size(), " boundaries need ",
                                   boundaries.size() + 1, " values, not ", values.size()));
  }
  if (!std::is_sorted(boundaries.begin(), boundaries.end())) {
    s.UpdateStatus(InvalidArgument("schedule ", s.prefix(), ": the boundaries must be increasing"));
  }
  const Output now = api_internal::Cast(s, step.In(s, DType::kInt64, "step"), DType::kInt64);
  const Output passed = Op(s, "Cast", {Op(s, "Greater", {now, boundaries})}, {{"DstT", DType::kInt32}});
  return Op(s, "GatherV2", {values, Op(s, "Sum", {passed, std::vector<int32_t>{0}}), 0});
}

Output Warmup(const Scope& scope, const Input& step, const Input& rate, double steps, double start) {
  const Scope s = scope.ForComposite("warmup");
  const Output t = Op(s, "Minimum", {Progress(s, step, steps, false), 1});
  const Output full = rate.In(s, DType::kFloat, "rate");
  return Op(s, "AddV2", {Op(s, "Mul", {full - start, t}), start});
}

}  // namespace millrace::schedules
