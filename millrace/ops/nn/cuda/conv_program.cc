#include "millrace/ops/nn/cuda/conv_program.h"

#include <algorithm>

#include "absl/strings/substitute.h"
#include "millrace/ops/kernels/cuda/elementwise_program.h"
#include "millrace/ops/kernels/cuda/program_headers.h"

namespace millrace {

static_assert(sizeof(WindowDim) == 7 * sizeof(int64_t), "ops/nn/cuda/windows.h has it as seven numbers");

ConvProgram::OnDevice::OnDevice(const ConvGeometry& g)
    : batch(g.batch),
      in_channels(g.in_channels),
      out_channels(g.out_channels),
      groups(g.groups),
      channels_first(g.channels_first) {
  std::copy(g.dim.begin(), g.dim.end(), dim);
}

std::string ConvProgram::Headers() {
  return absl::StrCat(kProgramPrelude, kProgramColumns, kProgramWindows, kProgramConvolutions);
}

std::string ConvProgram::Text() const { return absl::StrCat(Headers(), Kernels()); }

std::string ConvProgram::Kernels(const std::string& suffix) const {
  constexpr char kText[] = R"text(
namespace millrace {
extern "C" __global__ void $1$5(int64_t n, const Convolution g, const $0* x, const $0* w, $0* y) {
  ConvolutionForward(n, g, x, w, y);
}
extern "C" __global__ void $2$5(int64_t n, const Convolution g, const $0* w, const $0* dy, $0* dx) {
  ConvolutionInput(n, g, w, dy, dx);
}
extern "C" __global__ void $3$5(const Columns s, const Convolution g, const $0* x, const $0* dy,
                                ColumnSum<decltype(Widen($0()))>* pieces) {
  using Sum = ColumnSum<decltype(Widen($0()))>;
  OverColumns<Sum>(s, FilterSumOf<$0>{g, x, dy}, KeepPieces<Sum>{pieces, s.columns});
}
extern "C" __global__ void $4$5(const Columns s, const ColumnSum<decltype(Widen($0()))>* pieces, $0* dw) {
  using Sum = ColumnSum<decltype(Widen($0()))>;
  OverColumns<Sum>(s, JoinPieces<Sum>{pieces, s.columns}, StoreFilter<$0>{dw});
}
}  // namespace millrace
)text";
  return absl::Substitute(kText, ProgramTypeName(dtype), kForward, kInput, kFilter, kJoin, suffix);
}

}  // namespace millrace
