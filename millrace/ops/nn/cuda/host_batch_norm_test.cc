// The text of GPUs' batch normalisation, run on the host, gives what the CPU's kernels give.
#include "gtest/gtest.h"
#include "millrace/ops/kernels/cuda/cpu_results_testing.h"
#include "millrace/ops/kernels/cuda/host_programs_testing.h"
#include "millrace/ops/nn/cuda/batch_norm_program.h"
#include "millrace/ops/nn/cuda/column_plan.h"

namespace millrace {
namespace {

struct NormCase {
  std::vector<int64_t> shape;
  const char* format = "NHWC";
  float average = 1;
};

const std::vector<NormCase>& NormCases() {
  static const auto* const cases = new std::vector<NormCase>{{{2, 3, 4, 5}},
                                                             {{2, 3, 4, 5}, "NHWC", 0.25f},
                                                             {{3, 16, 15, 16}},
                                                             {{2, 5, 7, 40}},
                                                             {{1, 1, 1, 3}},
                                                             {{40, 30, 30, 1}},
                                                             {{3, 7, 5, 6}, "NCHW"},
                                                             {{2, 3, 40, 50}, "NCHW", 0.5f},
                                                             {{2, 3, 4, 2, 5}, "NDHWC"},
                                                             {{0, 3, 4, 5}}};
  return *cases;
}

class BatchNormOnHost {
 public:
  BatchNormOnHost(HostProgram& program, const ChannelBlocks& v) : program_(program), v_(v) {}

  void OverColumns(const char* sums, const char* settle, int64_t piece, std::vector<void*> of_sums, void* of_settle) {
    ColumnPlan plan = ColumnPlan::Of(v_.channels, v_.per_channel(), v_.inner == 1), join = plan.Join();
    std::vector<char> memory(plan.pieces() * v_.channels * piece);
    void* pieces = memory.data();
    of_sums.insert(of_sums.begin(), {&plan.columns, &v_});
    of_sums.push_back(&pieces);
    program_.Launch(sums, {plan.blocks[0], plan.blocks[1]}, {plan.threads[0], plan.threads[1]}, of_sums);
    program_.Launch(settle, {join.blocks[0], join.blocks[1]}, {join.threads[0], join.threads[1]},
                    {&join.columns, of_settle, &pieces});
  }
  void OverElements(const char* kernel, std::vector<void*> arguments) {
    int64_t n = v_.size();
    arguments.insert(arguments.begin(), {&n, &v_});
    program_.Launch(kernel, {3}, {64}, arguments);
  }

 private:
  HostProgram& program_;
  ChannelBlocks v_;
};

TEST(HostBatchNorm, AgreesWithTheCpu) {
  using P = BatchNormProgram;
  for (const DType dtype : {DType::kFloat, DType::kBFloat16}) {
    HostProgram program(P{.dtype = dtype}.Text(),
                        {P::kMoments, P::kSettle, P::kGiven, P::kNormalise, P::kSums, P::kSettleSums, P::kGradient});
    ASSERT_TRUE(program.ok());
    for (const NormCase& c : NormCases()) {
      for (const bool training : {true, false}) {
        const Shape shape(c.shape);
        SCOPED_TRACE(absl::StrCat(DTypeName(dtype), shape.ToString(), " ", c.format, training ? ", training" : ""));
        const bool first = c.format[1] == 'C';
        ChannelBlocks v = ChannelBlocks::Of(shape, first);
        const AttrList attrs = {
            {"U", DType::kFloat}, {"epsilon", 0.001f}, {"is_training", training}, {"data_format", c.format}};
        AttrList forward = attrs;
        forward.push_back({"exponential_avg_factor", c.average});
        const Shape vector({v.channels});
        const Tensor x = Noise(dtype, shape, 3), scale = Noise(DType::kFloat, vector, 4),
                     offset = Noise(DType::kFloat, vector, 5), mean = Noise(DType::kFloat, vector, 6),
                     variance = OnCpu("Abs", {Noise(DType::kFloat, vector, 7)}, {})[0], dy = Noise(dtype, shape, 8);
        const std::vector<Tensor> want = OnCpu("FusedBatchNormV3", {x, scale, offset, mean, variance}, forward, 5);
        const std::vector<Tensor> back =
            OnCpu("FusedBatchNormGradV3", {dy, x, scale, want[3], want[4], Tensor::Scalar(0.0f)}, attrs, 3);

        BatchNormOnHost run(program, v);
        std::vector<Tensor> got;
        for (int i = 0; i < 4; ++i) got.emplace_back(DType::kFloat, vector);
        Tensor factor(DType::kFloat, vector), y(dtype, shape);
        P::Vectors vectors = {.scale = scale.raw_data(), .mean = mean.raw_data(), .variance = variance.raw_data()};
        for (int i = 0; i < 4; ++i) vectors.results[i] = got[i].raw_data();
        vectors.factor = factor.raw_data();
        vectors.epsilon = 0.001f;
        vectors.average = c.average;
        const void *from = x.raw_data(), *shift = offset.raw_data(), *grad = dy.raw_data();
        void *used = got[2].raw_data(), *to = y.raw_data();
        if (training) {
          run.OverColumns(P::kMoments, P::kSettle, P::kMomentsSize, {&from}, &vectors);
        } else {
          int64_t n = v.channels;
          program.Launch(P::kGiven, {1}, {32}, {&n, &vectors});
        }
        run.OverElements(P::kNormalise, {&from, &used, &vectors.factor, &shift, &to});
        ExpectNear(y, want[0]);
        for (int i = 0; i < 4; ++i) ExpectNear(got[i], want[1 + i]);

        Tensor dscale(DType::kFloat, vector), doffset(DType::kFloat, vector), dx(dtype, shape);
        Tensor slopes(DType::kFloat, Shape({3, v.channels}));
        const void* given = want[3].raw_data();
        P::Gradients gradients = {.scale = scale.raw_data(),
                                  .variance = want[4].raw_data(),
                                  .dscale = dscale.raw_data(),
                                  .doffset = doffset.raw_data(),
                                  .slope = slopes.data<float>(),
                                  .shift = slopes.data<float>() + v.channels,
                                  .tilt = slopes.data<float>() + 2 * v.channels,
                                  .epsilon = 0.001f,
                                  .count = training ? static_cast<float>(v.per_channel()) : 0};
        run.OverColumns(P::kSums, P::kSettleSums, P::kSumsSize, {&grad, &from, &given}, &gradients);
        void* to_dx = dx.raw_data();
        run.OverElements(P::kGradient, {&grad, &from, &given, &gradients, &to_dx});
        if (v.size() == 0) continue;
        ExpectNear(dx, back[0]);
        ExpectNear(dscale, back[1]);
        ExpectNear(doffset, back[2]);
      }
    }
  }
}

// The mean is far from zero: a sum of squares would have no digits left.
TEST(HostBatchNorm, MomentsFarFromZeroKeepTheirDigits) {
  using P = BatchNormProgram;
  HostProgram program(P{}.Text(), {P::kMoments, P::kSettle});
  ASSERT_TRUE(program.ok());
  const Shape shape({4, 8, 8, 2});
  Tensor x = Noise(DType::kFloat, shape, 3);
  for (int64_t i = 0; i < x.num_elements(); ++i) x.data<float>()[i] += 4096;
  BatchNormOnHost run(program, ChannelBlocks::Of(shape, false));
  Tensor results(DType::kFloat, Shape({6, 2}));
  float* const at = results.data<float>();
  at[8] = at[9] = 1;
  P::Vectors vectors = {
      .scale = at + 8, .mean = at + 8, .variance = at + 8, .results = {at, at + 2, at + 4, at + 6}, .factor = at + 10};
  const void* from = x.raw_data();
  run.OverColumns(P::kMoments, P::kSettle, P::kMomentsSize, {&from}, &vectors);
  for (int c = 0; c < 2; ++c) {
    double mean = 0, variance = 0;
    const int64_t n = x.num_elements() / 2;
    for (int64_t i = 0; i < n; ++i) mean += double{x.data<float>()[2 * i + c]} / static_cast<double>(n);
    for (int64_t i = 0; i < n; ++i) variance += std::pow(x.data<float>()[2 * i + c] - mean, 2) / static_cast<double>(n);
    EXPECT_NEAR(at[4 + c], mean, 1e-3);
    EXPECT_NEAR(at[6 + c], variance, 1e-3 * variance);
  }
}

}  // namespace
}  // namespace millrace
