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
