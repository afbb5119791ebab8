// Learning rate schedules. Each returns a float scalar to pass to an optimizer; `step` is usually GlobalStep(scope).
#pragma once

#include <vector>

#include "millrace/api/input.h"

namespace millrace::schedules {

struct DecayOptions {
  double rate = 0.01;         // the initial rate
  double decay_steps = 1000;  // the time scale
  double decay = 0.96;
  bool staircase = false;  // decay only at multiples of decay_steps
};
// rate * decay ^ (step / decay_steps)
Output Exponential(const Scope& scope, const Input& step, const DecayOptions& options);
// rate * exp(-decay * step / decay_steps)
Output NaturalExp(const Scope& scope, const Input& step, const DecayOptions& options);
// rate / (1 + decay * step / decay_steps)
Output InverseTime(const Scope& scope, const Input& step, const DecayOptions& options);

struct PolynomialOptions {
  double rate = 0.01;
  double decay_steps = 1000;
  double end_rate = 0.0001;
  double power = 1;
  bool cycle = false;  // restart with a longer period instead of staying at end_rate
};
// Decays from rate to end_rate over decay_steps.
Output Polynomial(const Scope& scope, const Input& step, const PolynomialOptions& options);

struct CosineOptions {
  double rate = 0.01;
  double decay_steps = 1000;
  double alpha = 0;  // the final rate as a fraction of rate
};
// Half a cosine from rate to alpha * rate over decay_steps.
Output Cosine(const Scope& scope, const Input& step, const CosineOptions& options);

struct CosineRestartsOptions {
  double rate = 0.01;
  double first_decay_steps = 1000;  // of the first period
  double t_mul = 2;                 // how much longer each period is than the one before
  double m_mul = 1;                 // the initial rate of each period as a multiple of the one before
  double alpha = 0;                 // the lowest rate as a fraction of rate
};
// Cosine again and again: at the end of a period the rate starts anew.
Output CosineRestarts(const Scope& scope, const Input& step, const CosineRestartsOptions& options);

struct LinearCosineOptions {
  double rate = 0.01;
  double decay_steps = 1000;
  double num_periods = 0.5;  // of the cosine
  double alpha = 0;
  double beta = 0.001;
};
// rate * ((alpha + 1 - t) * (1 + cos(2 pi num_periods t)) / 2 + beta), where t = step / decay_steps, at most 1.
Output LinearCosine(const Scope& scope, const Input& step, const LinearCosineOptions& options);

struct NoisyLinearCosineOptions {
  double rate = 0.01;
  double decay_steps = 1000;
  double initial_variance = 1;
  double variance_decay = 0.55;
  double num_periods = 0.5;
  double alpha = 0;
  double beta = 0.001;
};
// The same with noise added to 1 - t: normal, with variance initial_variance / (1 + step)^variance_decay.
Output NoisyLinearCosine(const Scope& scope, const Input& step, const NoisyLinearCosineOptions& options);

// values[0] up to and including step boundaries[0], then values[1], and so on; needs one more value than boundaries.
Output PiecewiseConstant(const Scope& scope, const Input& step, const std::vector<int64_t>& boundaries,
                         const std::vector<float>& values);

// Linear warm-up from `start` to `rate` (a number or another schedule) over `steps`, then `rate`.
Output Warmup(const Scope& scope, const Input& step, const Input& rate, double steps, double start = 0);

}  // namespace millrace::schedules
