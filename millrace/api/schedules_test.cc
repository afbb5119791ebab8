#include "millrace/api/schedules.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "millrace/api/api_testing.h"

namespace millrace {
namespace {

// The schedule's values at the given steps, against `expected`.
void Expect(const std::function<Output(const Scope&, const Output&)>& schedule, const std::vector<int64_t>& steps,
            const std::function<double(double)>& expected) {
  const Scope s = Scope::NewRoot();
  const Output step = ops::Placeholder(s, DType::kInt64, {.shape = PartialShape::Scalar()});
  const Output rate = schedule(s, step);
  StatusOr<ClientSession> session = ClientSession::Create(s);
  ASSERT_TRUE(session.ok()) << session.status();
  for (int64_t at : steps) {
    StatusOr<Tensors> r = session->Run({{step, Tensor::Scalar(at)}}, {rate});
    ASSERT_TRUE(r.ok()) << r.status();
    EXPECT_NEAR((*r)[0].scalar<float>(), expected(static_cast<double>(at)), 1e-6) << "at step " << at;
  }
}

const std::vector<int64_t> kSteps = {0, 1, 5, 9, 10, 11, 25, 100};

TEST(Schedules, Decay) {
  for (bool staircase : {false, true}) {
    const schedules::DecayOptions options{.rate = 0.5, .decay_steps = 10, .decay = 0.9, .staircase = staircase};
    const auto progress = [=](double t) { return staircase ? std::floor(t / 10) : t / 10; };
    Expect([&](const Scope& s, const Output& step) { return schedules::Exponential(s, step, options); }, kSteps,
           [&](double t) { return 0.5 * std::pow(0.9, progress(t)); });
    Expect([&](const Scope& s, const Output& step) { return schedules::NaturalExp(s, step, options); }, kSteps,
           [&](double t) { return 0.5 * std::exp(-0.9 * progress(t)); });
    Expect([&](const Scope& s, const Output& step) { return schedules::InverseTime(s, step, options); }, kSteps,
           [&](double t) { return 0.5 / (1 + 0.9 * progress(t)); });
  }
}

TEST(Schedules, Polynomial) {
  schedules::PolynomialOptions options{.rate = 0.5, .decay_steps = 10, .end_rate = 0.1, .power = 2};
  const auto schedule = [&](const Scope& s, const Output& step) { return schedules::Polynomial(s, step, options); };
  Expect(schedule, kSteps, [](double t) { return 0.4 * std::pow(1 - std::min(t, 10.0) / 10, 2) + 0.1; });
  options.cycle = true;
  Expect(schedule, kSteps, [](double t) {
    const double period = 10 * std::max(1.0, std::ceil(t / 10));
    return 0.4 * std::pow(1 - t / period, 2) + 0.1;
  });
}

TEST(Schedules, Cosine) {
  Expect([](const Scope& s,
            const Output& step) { return schedules::Cosine(s, step, {.rate = 0.5, .decay_steps = 10, .alpha = 0.2}); },
         kSteps, [](double t) { return 0.5 * (0.8 * 0.5 * (1 + std::cos(M_PI * std::min(t, 10.0) / 10)) + 0.2); });
}

TEST(Schedules, CosinesOfAllKindsAreTensorFlows) {
  const std::vector<int64_t> steps = {0, 5, 10, 25, 47, 100};
  const auto expect = [&](const std::function<Output(const Scope&, const Output&)>& schedule,
                          const std::vector<double>& values) {
    Expect(schedule, steps, [&](double t) {
      return values[std::find(steps.begin(), steps.end(), static_cast<int64_t>(t)) - steps.begin()];
    });
  };
  expect([](const Scope& s,
            const Output& t) { return schedules::CosineRestarts(s, t, {.rate = 0.5, .first_decay_steps = 10}); },
         {0.5, 0.25, 0.5, 0.073223, 0.308361, 0.345671});
  expect(
      [](const Scope& s, const Output& t) {
        return schedules::CosineRestarts(
            s, t, {.rate = 0.5, .first_decay_steps = 10, .t_mul = 1, .m_mul = 0.8, .alpha = 0.1});
      },
      {0.5, 0.275, 0.41, 0.194, 0.08799, 0.098318});
  expect(
      [](const Scope& s, const Output& t) { return schedules::LinearCosine(s, t, {.rate = 0.5, .decay_steps = 40}); },
      {0.5005, 0.421349, 0.320583, 0.058373, 0.0005, 0.0005});
  expect(
      [](const Scope& s, const Output& t) {
        return schedules::LinearCosine(s, t,
                                       {.rate = 0.5, .decay_steps = 40, .num_periods = 2, .alpha = 0.1, .beta = 0.01});
      },
      {0.555, 0.24875, 0.005, 0.12375, 0.055, 0.055});
  // Without variance, the noisy one is the other.
  expect(
      [](const Scope& s, const Output& t) {
        return schedules::NoisyLinearCosine(s, t, {.rate = 0.5, .decay_steps = 40, .initial_variance = 0});
      },
      {0.5005, 0.421349, 0.320583, 0.058373, 0.0005, 0.0005});
  const Scope s = Scope::NewRoot();
  schedules::CosineRestarts(s, 1, {.t_mul = 0.5});
  EXPECT_EQ(s.status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(Schedules, NoiseHasItsVariance) {
  const Scope s = Scope::NewRoot();
  s.SetRandomSeed(3);
  // At step 15 the cosine is 1, the linear part 1/2 and the standard deviation of the noise (1 / 16)^(1 / 4) = 1/2.
  const Output rate = schedules::NoisyLinearCosine(
      s, 15, {.rate = 1, .decay_steps = 30, .variance_decay = 0.5, .num_periods = 2, .beta = 0});
  ClientSession session = ClientSession::Create(s).value();
  double sum = 0, squares = 0;
  constexpr int kRuns = 500;
  for (int i = 0; i < kRuns; ++i) {
    const double value = session.Run({rate}).value()[0].scalar<float>();
    sum += value / kRuns;
    squares += value * value / kRuns;
  }
  EXPECT_NEAR(sum, 0.5, 0.05);
  EXPECT_NEAR(std::sqrt(squares - sum * sum), 0.5, 0.05);
}

TEST(Schedules, PiecewiseConstant) {
  Expect(
      [](const Scope& s, const Output& step) {
        return schedules::PiecewiseConstant(s, step, {5, 10}, {1.0f, 0.5f, 0.1f});
      },
      kSteps, [](double t) { return t <= 5    ? 1.0
                                    : t <= 10 ? 0.5
                                              : 0.1f; });
  const Scope s = Scope::NewRoot();
  schedules::PiecewiseConstant(s, 0, {5}, {1.0f});
  EXPECT_EQ(s.status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(Schedules, WarmupRisesToTheRate) {
  Expect([](const Scope& s, const Output& step) { return schedules::Warmup(s, step, 0.5, 10, 0.1); }, kSteps,
         [](double t) { return 0.1 + 0.4 * std::min(t, 10.0) / 10; });
}

}  // namespace
}  // namespace millrace
