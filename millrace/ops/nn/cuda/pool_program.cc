#include "millrace/ops/nn/cuda/pool_program.h"

#include "absl/strings/substitute.h"
#include "millrace/ops/kernels/cuda/elementwise_program.h"
#include "millrace/ops/kernels/cuda/program_headers.h"

namespace millrace {

static_assert(sizeof(PoolGeometry) == 23 * sizeof(int64_t), "ops/nn/cuda/pools.h has it as batch, channels, windows");

std::string PoolProgram::Headers() { return absl::StrCat(kProgramPrelude, kProgramWindows, kProgramPools); }

std::string PoolProgram::Text() const { return absl::StrCat(Headers(), Kernels()); }

std::string PoolProgram::Kernels(const std::string& suffix) const {
  constexpr char kMaxText[] = R"text(
namespace millrace {
extern "C" __global__ void $1$5(int64_t n, const Pool p, const $0* x, $0* y) { MaxPool(n, p, x, y); }
extern "C" __global__ void $2$5(int64_t n, const Pool p, const $0* x, int* pixels) { MaxPoolPixels(n, p, x, pixels); }
extern "C" __global__ void $3$5(int64_t n, const Pool p, const int* pixels, const $0* dy, $0* dx) {
  MaxPoolBack(n, p, pixels, dy, dx);
}
extern "C" __global__ void $4$5(int64_t n, const Pool p, const $0* x, const $0* grad, $0* y) {
  MaxPoolBackBack(n, p, x, grad, y);
}
}  // namespace millrace
)text";
  constexpr char kAvgText[] = R"text(
namespace millrace {
extern "C" __global__ void $1$3(int64_t n, const Pool p, const $0* x, $0* y) { AvgPool(n, p, x, y); }
extern "C" __global__ void $2$3(int64_t n, const Pool p, const $0* dy, $0* dx) { AvgPoolBack(n, p, dy, dx); }
}  // namespace millrace
)text";
  const char* const type = ProgramTypeName(dtype);
  return averages ? absl::Substitute(kAvgText, type, kAvg, kAvgBack, suffix)
                  : absl::Substitute(kMaxText, type, kMax, kMaxPixels, kMaxBack, kMaxBackBack, suffix);
}

}  // namespace millrace
