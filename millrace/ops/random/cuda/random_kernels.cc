// Random numbers on a GPU: those that the CPU gives, normal ones within rounding.
#include "millrace/ops/kernels/cuda/cuda_call.h"
#include "millrace/ops/random/cuda/random_program.h"

namespace millrace::random {
namespace {

template <SourceKind source, Distribution distribution>
class CudaRandomKernel : public RandomKernel {
 public:
  explicit CudaRandomKernel(KernelInit& init)
      : RandomKernel(init, source, distribution),
        kernel_(CompileFor(init, RandomProgram{distribution, init.output_type(0)}.Text(), RandomProgram::kKernel)) {}

 protected:
  Status FillOutput(KernelContext& ctx, const Philox& stream, Range range, Tensor* out) const override {
    CudaCall call(ctx);
    MR_ASSIGN_OR_RETURN(void* to, call.Memory(*out));
    int64_t n = out->num_elements();
    RandomProgram::State state = RandomProgram::State::Of(stream);
    std::vector<void*> arguments = {&n, &state};
    if (distribution == Distribution::kUniformInt) arguments.insert(arguments.end(), {&range.low, &range.size});
    arguments.push_back(&to);
    return call.LaunchOverElements(ctx.node().type(), kernel_, GroupsOf(n, out->dtype()), arguments);
  }

 private:
  const cudaKernel_t kernel_;
};

std::vector<DType> RandomIntegers() { return {DType::kInt32, DType::kInt64, DType::kUInt32, DType::kUInt64}; }

#define MR_RANDOM(op, attr, types, source, distribution) \
  MILLRACE_KERNEL_OF(op, kCuda, ({attr, types}), CudaRandomKernel<SourceKind::source, Distribution::distribution>)

MR_RANDOM(RandomUniform, "dtype", CudaRealFloats(), kSeedAttrs, kUniform);
MR_RANDOM(RandomStandardNormal, "dtype", CudaRealFloats(), kSeedAttrs, kNormal);
MR_RANDOM(TruncatedNormal, "dtype", CudaRealFloats(), kSeedAttrs, kTruncatedNormal);
MR_RANDOM(RandomUniformInt, "Tout", RandomIntegers(), kSeedAttrs, kUniformInt);
MR_RANDOM(StatelessRandomUniform, "dtype", CudaRealFloats(), kSeedInput, kUniform);
MR_RANDOM(StatelessRandomNormal, "dtype", CudaRealFloats(), kSeedInput, kNormal);
MR_RANDOM(StatelessTruncatedNormal, "dtype", CudaRealFloats(), kSeedInput, kTruncatedNormal);
MR_RANDOM(StatelessRandomUniformInt, "dtype", RandomIntegers(), kSeedInput, kUniformInt);
MR_RANDOM(StatelessRandomUniformFullInt, "dtype", RandomIntegers(), kSeedInput, kFullInt);
MR_RANDOM(StatelessRandomUniformV2, "dtype", CudaRealFloats(), kKeyInputs, kUniform);
MR_RANDOM(StatelessRandomNormalV2, "dtype", CudaRealFloats(), kKeyInputs, kNormal);
MR_RANDOM(StatelessTruncatedNormalV2, "dtype", CudaRealFloats(), kKeyInputs, kTruncatedNormal);
MR_RANDOM(StatelessRandomUniformIntV2, "dtype", RandomIntegers(), kKeyInputs, kUniformInt);
MR_RANDOM(StatelessRandomUniformFullIntV2, "dtype", RandomIntegers(), kKeyInputs, kFullInt);

}  // namespace
}  // namespace millrace::random
