// The text of the programs that draw random numbers compiles for an H200 and, run on the host, draws what the CPU
// draws.
#include "millrace/ops/random/cuda/random_program.h"

#include "gtest/gtest.h"
#include "millrace/ops/kernels/cuda/compile_testing.h"
#include "millrace/ops/kernels/cuda/cpu_results_testing.h"

namespace millrace::random {
namespace {

struct Drawn {
  Distribution distribution;
  const char* op;
  std::vector<DType> types;
};

std::vector<Drawn> All() {
  const std::vector<DType> floats = {DType::kFloat, DType::kDouble, DType::kHalf, DType::kBFloat16};
  return {{Distribution::kUniform, "StatelessRandomUniform", floats},
          {Distribution::kNormal, "StatelessRandomNormal", floats},
          {Distribution::kTruncatedNormal, "StatelessTruncatedNormal", floats},
          {Distribution::kUniformInt, "StatelessRandomUniformInt", {DType::kInt32, DType::kInt64}},
          {Distribution::kFullInt,
           "StatelessRandomUniformFullInt",
           {DType::kInt32, DType::kInt64, DType::kUInt32, DType::kUInt64}}};
}

TEST(RandomProgram, EveryDistributionCompilesForEveryType) {
  if (const auto version = NvrtcVersion(); !version.ok()) GTEST_SKIP() << version.status();
  std::string kernels;
  for (const Drawn& drawn : All()) {
    for (const DType dtype : drawn.types)
      kernels += RandomProgram{drawn.distribution, dtype}.Kernel(absl::StrCat(drawn.op, static_cast<int>(dtype)));
  }
  ExpectCompilesWithoutSpills(RandomProgram::Headers() + kernels);
}

TEST(RandomProgram, DrawsWhatTheCpuDraws) {
  const Tensor seed = Tensor::Of<int64_t>({2}, {17, -4});
  for (const Drawn& drawn : All()) {
    for (const DType dtype : drawn.types) {
      SCOPED_TRACE(absl::StrCat(drawn.op, " of ", DTypeName(dtype)));
      HostProgram program(RandomProgram{drawn.distribution, dtype}.Text(), {RandomProgram::kKernel});
      ASSERT_TRUE(program.ok());
      for (int64_t n : {1, 3, 4, 1001}) {
        std::vector<Tensor> inputs = {Tensor::Of<int32_t>({1}, {static_cast<int32_t>(n)}), seed};
        uint64_t low = static_cast<uint64_t>(-5), size = 1234;
        if (drawn.distribution == Distribution::kUniformInt) {
          for (const int64_t bound : {-5, 1229})
            inputs.push_back(OnCpu("Cast", {Tensor::Scalar(bound)}, {{"DstT", dtype}})[0]);
        }
        const Tensor want = OnCpu(drawn.op, inputs, {{"dtype", dtype}})[0];
        Tensor got(dtype, Shape({n}));
        RandomProgram::State state = RandomProgram::State::Of(StreamFromSeed(seed).value());
        void* to = got.raw_data();
        std::vector<void*> arguments = {&n, &state};
        if (drawn.distribution == Distribution::kUniformInt) arguments.insert(arguments.end(), {&low, &size});
        arguments.push_back(&to);
        LaunchElements(program, RandomProgram::kKernel, arguments);
        const bool normal =
            drawn.distribution == Distribution::kNormal || drawn.distribution == Distribution::kTruncatedNormal;
        normal ? ExpectNear(got, want) : ExpectSame(got, want);
      }
    }
  }
}

}  // namespace
}  // namespace millrace::random
