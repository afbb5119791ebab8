#include "millrace/ops/nn/cuda/batch_norm_program.h"

#include "absl/strings/substitute.h"
#include "millrace/ops/kernels/cuda/elementwise_program.h"
#include "millrace/ops/kernels/cuda/program_headers.h"

namespace millrace {

static_assert(sizeof(ChannelBlocks) == 3 * sizeof(int64_t), "ops/nn/cuda/batch_norms.h has it as three numbers");

std::string BatchNormProgram::Headers() { return absl::StrCat(kProgramPrelude, kProgramColumns, kProgramBatchNorms); }

std::string BatchNormProgram::Text() const { return absl::StrCat(Headers(), Kernels()); }

std::string BatchNormProgram::Kernels(const std::string& suffix) const {
  constexpr char kForward[] = R"text(
namespace millrace {
extern "C" __global__ void $1$5(const Columns s, const Channels v, const $0* x, Moments* pieces) {
  OverColumns<Moments>(s, MomentsOf<$0>{v, x}, KeepPieces<Moments>{pieces, s.columns});
}
extern "C" __global__ void $2$5(const Columns s, const BatchNorm b, const Moments* pieces) {
  OverColumns<Moments>(s, JoinPieces<Moments>{pieces, s.columns}, SettleBatch{b});
}
extern "C" __global__ void $3$5(int64_t n, const BatchNorm b) {
  const int64_t first = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (int64_t c = first; c < n; c += static_cast<int64_t>(gridDim.x) * blockDim.x)
    Settle(b, c, b.mean[c], b.variance[c], b.mean[c], b.variance[c]);
}
extern "C" __global__ void $4$5(int64_t n, const Channels v, const $0* x, const float* mean, const float* factor,
                                const float* offset, $0* y) {
  Normalise(n, v, x, mean, factor, offset, y);
}
}  // namespace millrace
)text";
  constexpr char kBackward[] = R"text(
namespace millrace {
extern "C" __global__ void $1$4(const Columns s, const Channels v, const $0* dy, const $0* x, const float* mean,
                                GradientSums* pieces) {
  OverColumns<GradientSums>(s, GradientSumsOf<$0>{v, dy, x, mean}, KeepPieces<GradientSums>{pieces, s.columns});
}
extern "C" __global__ void $2$4(const Columns s, const BatchNormGradient b, const GradientSums* pieces) {
  OverColumns<GradientSums>(s, JoinPieces<GradientSums>{pieces, s.columns}, SettleGradient{b});
}
extern "C" __global__ void $3$4(int64_t n, const Channels v, const $0* dy, const $0* x, const float* mean,
                                const BatchNormGradient b, $0* dx) {
  GradientOfInput(n, v, dy, x, mean, b, dx);
}
}  // namespace millrace
)text";
  const char* const type = ProgramTypeName(dtype);
  return absl::Substitute(kForward, type, kMoments, kSettle, kGiven, kNormalise, suffix) +
         absl::Substitute(kBackward, type, kSums, kSettleSums, kGradient, suffix);
}

}  // namespace millrace
