// BlockLSTM and its gradient. The numbers are TensorFlow 2.21's.
#include "tests/ops/run_op.h"

namespace millrace {
namespace {

// ((5 i) mod 7 - 3) scale + shift
Tensor Ramp(Shape shape, float scale, float shift = 0) {
  Tensor t(DType::kFloat, std::move(shape));
  for (int64_t i = 0; i < t.num_elements(); ++i) {
    t.data<float>()[i] = static_cast<float>(i * 5 % 7 - 3) * scale + shift;
  }
  return t;
}

Tensor Filled(Shape shape, float value) {
  Tensor t(DType::kFloat, std::move(shape));
  std::fill_n(t.data<float>(), t.num_elements(), value);
  return t;
}

// The nine inputs of BlockLSTM.
std::vector<Tensor> Inputs(int64_t time, int64_t batch, int64_t depth, int64_t units, int64_t steps) {
  const Tensor peephole = Ramp(Shape({units}), 0.3f, 0.1f);
  return {Tensor::Scalar<int64_t>(steps),
          Noise(Shape({time, batch, depth}), 1),
          Noise(Shape({batch, units}), 2),
          Noise(Shape({batch, units}), 3),
          Noise(Shape({depth + units, 4 * units}), 4),
          peephole,
          peephole,
          peephole,
          Noise(Shape({4 * units}), 5)};
}

std::vector<Tensor> GradInputs(std::vector<Tensor> inputs, const std::vector<Tensor>& outputs, uint32_t seed) {
  inputs.insert(inputs.end(), outputs.begin(), outputs.end());
  inputs.push_back(Noise(outputs[0].shape(), seed));
  inputs.push_back(Noise(outputs[0].shape(), seed + 1));
  return inputs;
}

TEST(BlockLstmTest, GivesTensorFlowsValuesAndGradients) {
  std::vector<Tensor> in = Inputs(3, 2, 2, 2, 3);
  // Time-major: the ramp of [batch, time, depth].
  const Tensor x = Ramp(Shape({2, 3, 2}), 0.3f);
  for (int64_t t = 0; t < 3; ++t) {
    for (int64_t b = 0; b < 2; ++b)
      std::copy_n(x.data<float>() + (b * 3 + t) * 2, 2, in[1].data<float>() + (t * 2 + b) * 2);
  }
  in[2] = in[3] = Filled(Shape({2, 2}), 0);
  in[4] = Ramp(Shape({4, 8}), 0.1f, 0.05f);
  in[8] = Ramp(Shape({8}), 0.2f);
  auto out = RunOp("BlockLSTM", in, {{"cell_clip", -1.0}, {"use_peephole", true}});
  ASSERT_TRUE(out.ok()) << out.status();
  ExpectNear(
      (*out)[6],
      Tensor::Of<float>(Shape({3, 2, 2}), {-0.025946f, -0.013281f, 0.019238f, -0.087494f, -0.011347f, -0.089599f,
                                           0.017547f, -0.116810f, -0.011061f, -0.115630f, -0.017965f, -0.123873f}),
      2e-6f);
  std::vector<Tensor> grad_in = in;
  grad_in.insert(grad_in.end(), out->begin(), out->end());
  grad_in.push_back(Filled(Shape({3, 2, 2}), 0.5f));
  grad_in.push_back(Filled(Shape({3, 2, 2}), 1));
  auto grads = RunOp("BlockLSTMGrad", grad_in, {{"use_peephole", true}});
  ASSERT_TRUE(grads.ok()) << grads.status();
  ExpectNear((*grads)[0],
             Tensor::Of<float>(Shape({3, 2, 2}), {-0.062395f, 0.131419f, -0.087208f, 0.043084f, -0.070978f, 0.048406f,
                                                  -0.066317f, 0.067508f, -0.032181f, 0.043027f, -0.019139f, 0.053794f}),
             2e-6f);
  ExpectNear((*grads)[3],
             Tensor::Of<float>(
                 Shape({4, 8}),
                 {0.083873f,  -0.050795f, -0.909982f, -0.628642f, -0.000278f, -0.027147f, 0.021264f,  -0.060604f,
                  -0.171655f, 0.236292f,  -0.001534f, 0.255060f,  0.013968f,  -0.089736f, -0.030159f, -0.000678f,
                  -0.001337f, 0.002184f,  -0.001861f, 0.001103f,  0.000703f,  -0.002326f, 0.000292f,  -0.000363f,
                  0.003691f,  0.017901f,  -0.131206f, -0.123219f, -0.000952f, 0.020599f,  0.000850f,  0.025300f}),
             2e-6f);
  ExpectNear((*grads)[4], Tensor::Of<float>({-0.003137f, 0.065205f}), 2e-6f);
  ExpectNear((*grads)[5], Tensor::Of<float>({0.001560f, 0.083485f}), 2e-6f);
  ExpectNear((*grads)[6], Tensor::Of<float>({0.002890f, 0.156786f}), 2e-6f);
  ExpectNear(
      (*grads)[7],
      Tensor::Of<float>({-0.018623f, -0.549291f, 3.889083f, 3.102393f, -0.004650f, -0.209385f, -0.018332f, -0.389885f}),
      2e-6f);
}

// Sizes that fill no block, panel or vector.
TEST(BlockLstmTest, HasTheSameBitsOnAnyNumberOfThreads) {
  for (const auto& [batch, units] : {std::pair<int64_t, int64_t>{19, 21}, {32, 128}, {1, 5}}) {
    const std::vector<Tensor> in = Inputs(5, batch, 13, units, 4);
    const auto out = RunOnAllThreads("BlockLSTM", in, {{"use_peephole", true}});
    ASSERT_EQ(out.size(), 7);
    const auto grads = RunOnAllThreads("BlockLSTMGrad", GradInputs(in, out, 7), {{"use_peephole", true}});
    ASSERT_EQ(grads.size(), 8);
  }
}

// The inputs' share of the gates and the other's are computed apart; here both by the definition.
TEST(BlockLstmTest, OneStepIsWhatTheEquationsSay) {
  const int64_t batch = 11, depth = 9, units = 37;
  const std::vector<Tensor> in = Inputs(1, batch, depth, units, 1);
  const auto out = RunOp("BlockLSTM", in, {{"forget_bias", 0.7}, {"cell_clip", 0.4}});
  ASSERT_TRUE(out.ok()) << out.status();
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  for (int64_t r = 0; r < batch; ++r) {
    for (int64_t u = 0; u < units; ++u) {
      double z[4];
      for (int64_t g = 0; g < 4; ++g) {
        const int64_t column = g * units + u;
        z[g] = in[8].data<float>()[column];
        for (int64_t d = 0; d < depth; ++d) {
          z[g] += double{in[1].data<float>()[r * depth + d]} * in[4].data<float>()[d * 4 * units + column];
        }
        for (int64_t h = 0; h < units; ++h) {
          z[g] += double{in[3].data<float>()[r * units + h]} * in[4].data<float>()[(depth + h) * 4 * units + column];
        }
      }
      const int64_t at = r * units + u;
      const double c = std::clamp(sigmoid(z[0]) * std::tanh(z[1]) + sigmoid(z[2] + 0.7) * in[2].data<float>()[at],
                                  -double{0.4f}, double{0.4f});
      ASSERT_NEAR((*out)[1].data<float>()[at], c, 1e-5) << r << " " << u;
      ASSERT_NEAR((*out)[6].data<float>()[at], sigmoid(z[3]) * std::tanh(c), 1e-5) << r << " " << u;
    }
  }
}

TEST(BlockLstmTest, IsZeroBeyondTheGivenSteps) {
  const std::vector<Tensor> in = Inputs(4, 3, 2, 5, 2);
  const auto out = RunOp("BlockLSTM", in);
  ASSERT_TRUE(out.ok()) << out.status();
  const auto grads = RunOp("BlockLSTMGrad", GradInputs(in, *out, 3), {{"use_peephole", false}});
  ASSERT_TRUE(grads.ok()) << grads.status();
  for (const Tensor& t : {(*out)[1], (*out)[6], (*grads)[0]}) {
    const int64_t half = t.num_elements() / 2;
    EXPECT_NE(t.data<float>()[half - 1], 0);
    for (int64_t i = half; i < t.num_elements(); ++i) ASSERT_EQ(t.data<float>()[i], 0);
  }
}

TEST(BlockLstmTest, NamesWhatIsWrong) {
  const auto message = [](auto change) {
    std::vector<Tensor> in = Inputs(4, 3, 2, 5, 4);
    change(in);
    const auto out = RunOp("BlockLSTM", in);
    EXPECT_EQ(out.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(out.status().message());
  };
  const auto contains = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  EXPECT_TRUE(contains(message([](auto& in) { in[0] = Tensor::Scalar<int64_t>(5); }), "seq_len_max is 5"));
  EXPECT_TRUE(contains(message([](auto& in) { in[1] = Noise(Shape({4, 6})); }), "x must be 3-dimensional"));
  EXPECT_TRUE(contains(message([](auto& in) { in[3] = Noise(Shape({2, 5})); }), "h_prev must have shape [3,5]"));
  EXPECT_TRUE(contains(message([](auto& in) { in[4] = Noise(Shape({7, 19})); }), "w must have shape [7,20]"));
}

}  // namespace
}  // namespace millrace
