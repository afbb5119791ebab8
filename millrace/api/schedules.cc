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

Output CosineRestarts(const Scope& scope, const Input& step, const CosineRestartsOptions& options) {
  const Scope s = scope.ForComposite("cosine_decay_restarts");
  if (!(options.t_mul >= 1) || !(options.m_mul > 0)) {
    s.UpdateStatus(InvalidArgument("schedule ", s.prefix(), ": t_mul is ", options.t_mul, " and m_mul ", options.m_mul,
                                   "; the one must be at least 1, the other positive"));
  }
  const Output t = Progress(s, step, options.first_decay_steps, false);
  Output restarts, within;
  if (options.t_mul == 1) {
    restarts = Op(s, "Floor", {t});
    within = t - restarts;
  } else {
    // Before period i lie (t_mul^i - 1) / (t_mul - 1) first periods.
    restarts = Op(s, "Floor", {Op(s, "Log", {t * (options.t_mul - 1) + 1}) / std::log(options.t_mul)});
    const Output length = Op(s, "Pow", {options.t_mul, restarts});
    within = (t - (length - 1) / (options.t_mul - 1)) / length;
  }
  const Output height = Op(s, "Pow", {options.m_mul, restarts});
  const Output cosine = (Op(s, "Cos", {within * M_PI}) + 1) * 0.5 * height;
  return (cosine * (1 - options.alpha) + options.alpha) * options.rate;
}

namespace {

// rate * ((alpha + linear) * cosine + beta)
template <typename Options>
Output LinearTimesCosine(const Scope& s, const Output& t, const Output& linear, const Options& options) {
  const Output cosine = (Op(s, "Cos", {t * (2 * M_PI * options.num_periods)}) + 1) * 0.5;
  return ((linear + options.alpha) * cosine + options.beta) * options.rate;
}

}  // namespace

Output LinearCosine(const Scope& scope, const Input& step, const LinearCosineOptions& options) {
  const Scope s = scope.ForComposite("linear_cosine_decay");
  const Output t = Op(s, "Minimum", {Progress(s, step, options.decay_steps, false), 1});
  return LinearTimesCosine(s, t, 1 - t, options);
}

Output NoisyLinearCosine(const Scope& scope, const Input& step, const NoisyLinearCosineOptions& options) {
  const Scope s = scope.ForComposite("noisy_linear_cosine_decay");
  if (!(options.initial_variance >= 0)) {
    s.UpdateStatus(InvalidArgument("schedule ", s.prefix(), ": initial_variance is ", options.initial_variance));
  }
  const Output t = Op(s, "Minimum", {Progress(s, step, options.decay_steps, false), 1});
  const Output variance =
      options.initial_variance / Op(s, "Pow", {t * options.decay_steps + 1, options.variance_decay});
  const auto [seed, seed2] = s.OpSeeds();
  const Output normal = Op(s, "RandomStandardNormal", {std::vector<int32_t>{}},
                           {{"dtype", DType::kFloat}, {"seed", seed}, {"seed2", seed2}});
  const Output noise = normal * Op(s, "Sqrt", {variance});
  return LinearTimesCosine(s, t, 1 - t + noise, options);
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
