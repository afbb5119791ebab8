#include "millrace/ops/kernels/cuda/lines_program.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/substitute.h"
#include "millrace/ops/kernels/cuda/elementwise_program.h"
#include "millrace/ops/kernels/cuda/program_headers.h"
#include "millrace/ops/kernels/cuda/rows_program.h"

namespace millrace {
namespace {

std::string LinesText(const std::string& kernels) {
  return absl::StrCat(LinesProgram::Headers(), "namespace millrace {\n", kernels, "}  // namespace millrace\n");
}

}  // namespace

std::string LinesProgram::Headers() {
  return absl::StrCat(kProgramPrelude, kProgramFunctors, kProgramIndexedRows, kProgramLines);
}

std::string LinesProgram::Best(const std::string& before, DType dtype, DType out) {
  constexpr char kText[] = R"text(
extern "C" __global__ void $0(int64_t lines, int64_t n, int64_t inner, const $1* x, $2* out) {
  BestOfLines<$3>(lines, n, inner, x, out);
}
)text";
  return LinesText(absl::Substitute(kText, kBest, ProgramTypeName(dtype), ProgramTypeName(out), before));
}

std::string LinesProgram::Scan(const std::string& combine, const std::string& identity, DType dtype) {
  constexpr char kText[] = R"text(
using Acc = decltype(Widen($2()));
extern "C" __global__ void $0(int64_t lines, int64_t n, int64_t inner, int exclusive, int reverse, const $2* x, $2* y) {
  ScanShortLines<$3>(lines, n, inner, exclusive, reverse, $4, x, y);
}
extern "C" __global__ void $1(int64_t lines, int64_t n, int64_t inner, int exclusive, int reverse, const $2* x, $2* y) {
  ScanLongLines<$3>(lines, n, inner, exclusive, reverse, $4, x, y);
}
)text";
  const std::string element = absl::StrCat("using Element = ", ProgramTypeName(dtype), ";");
  return LinesText(absl::StrCat(element, absl::Substitute(kText, kScanShort, kScanLong, "Element", combine, identity)));
}

std::string LinesProgram::TopK(DType dtype, DType index) {
  constexpr char kText[] = R"text(
extern "C" __global__ void $0(int64_t rows, int64_t n, int* places) {
  ForElements(rows * n, [&](int64_t i) { places[i] = static_cast<int>(i % n); });
}
extern "C" __global__ void $1(int64_t rows, int64_t n, const $4* x, int* places) {
  SortPieces(n, places, places, TopKOrder<$4>{x, n});
}
extern "C" __global__ void $2(int64_t rows, int64_t n, int64_t run, const $4* x, const int* in, int* out) {
  MergeRuns(rows, n, run, in, out, TopKOrder<$4>{x, n});
}
extern "C" __global__ void $3(int64_t rows, int64_t n, int64_t k, const int* places, const $4* x, $4* values,
                              $5* indices) {
  ForElements(rows * k, [&](int64_t i) {
    const int64_t row = i / k;
    const int place = places[row * n + (i - row * k)];
    values[i] = x[row * n + place];
    indices[i] = static_cast<$5>(place);
  });
}
)text";
  return LinesText(
      absl::Substitute(kText, kPlaces, kSortPieces, kMergeRuns, kTake, ProgramTypeName(dtype), ProgramTypeName(index)));
}

std::string LinesProgram::InTopK(DType target) {
  constexpr char kText[] = R"text(
extern "C" __global__ void $0(int64_t rows, int64_t width, int64_t k, const float* x, const $1* targets, bool* out) {
  InTopKRows(rows, width, k, x, targets, out);
}
)text";
  return LinesText(absl::Substitute(kText, kInTopK, ProgramTypeName(target)));
}

std::string LinesProgram::OneHot(int bytes, DType index) {
  constexpr char kText[] = R"text(
extern "C" __global__ void $0(int64_t outer, int64_t depth, int64_t inner, const $1* indices, const $2* on,
                              const $2* off, $2* out) {
  OneHotElements(outer, depth, inner, indices, on, off, out);
}
)text";
  return LinesText(absl::Substitute(kText, kOneHot, ProgramTypeName(index), ProgramBytesName(bytes)));
}

std::string LinesProgram::Band(int bytes) {
  constexpr char kText[] = R"text(
extern "C" __global__ void $0(int64_t matrices, int64_t height, int64_t width, int64_t lower, int64_t upper,
                              const $1* x, $1* y) {
  BandOfMatrices(matrices, height, width, lower, upper, x, y);
}
)text";
  return LinesText(absl::Substitute(kText, kBand, ProgramBytesName(bytes)));
}

std::string LinesProgram::Put(int bytes) {
  constexpr char kText[] = R"text(
extern "C" __global__ void $0(int64_t rows, int64_t width, const int64_t* targets, const $1* x, $1* out) {
  PutRows(rows, width, targets, x, out);
}
)text";
  return LinesText(absl::Substitute(kText, kPut, ProgramBytesName(bytes)));
}

}  // namespace millrace
