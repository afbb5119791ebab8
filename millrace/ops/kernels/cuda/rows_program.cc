#include "millrace/ops/kernels/cuda/rows_program.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/substitute.h"
#include "millrace/ops/kernels/cuda/elementwise_program.h"
#include "millrace/ops/kernels/cuda/program_headers.h"

namespace millrace {
namespace {

std::string Program(const std::string& kernels) {
  return absl::StrCat(RowsProgram::Headers(), "namespace millrace {\n", kernels, "}  // namespace millrace\n");
}

}  // namespace

const char* ProgramBytesName(int bytes) {
  switch (bytes) {
    case 1:
      return "unsigned char";
    case 2:
      return "unsigned short";
    case 4:
      return "unsigned int";
    case 8:
      return "unsigned long long";
    default:
      return "Bytes16";
  }
}

std::string RowsProgram::Headers() { return absl::StrCat(kProgramPrelude, kProgramFunctors, kProgramIndexedRows); }

std::string RowsProgram::Gather(int bytes, DType index) {
  constexpr char kText[] = R"text(
extern "C" __global__ void $0(const GatherForm form, int64_t rows, int64_t inner, const $1* params, const $2* indices,
                              $1* out) {
  GatherRows(form, rows, inner, params, indices, out);
}
)text";
  return Program(absl::Substitute(kText, kGather, ProgramBytesName(bytes), ProgramTypeName(index)));
}

std::string RowsProgram::Slots(DType index) {
  constexpr char kText[] = R"text(
extern "C" __global__ void $0(int64_t n, const RowIndex form, const $1* indices, Slot* slots) {
  MakeSlots(n, form, indices, slots);
}
)text";
  return Program(absl::Substitute(kText, kSlots, ProgramTypeName(index)));
}

std::string RowsProgram::Sort() {
  constexpr char kText[] = R"text(
struct SlotBefore {
  __device__ bool operator()(int64_t, Slot a, Slot b) const { return a < b; }
};
extern "C" __global__ void $0(int64_t n, Slot* slots) { SortPieces(n, slots, slots, SlotBefore()); }
extern "C" __global__ void $1(int64_t n, int64_t run, const Slot* in, Slot* out) {
  MergeRuns(1, n, run, in, out, SlotBefore());
}
)text";
  return Program(absl::Substitute(kText, kSortPieces, kMergeRuns));
}

std::string RowsProgram::Update(const std::string& combine, bool rounds, DType dtype) {
  constexpr char kText[] = R"text(
using Element = $1;
using Wide = decltype(Widen(Element()));
struct Combine {
  __device__ Wide operator()(Wide a, Wide x) const { return $2; }
};
extern "C" __global__ void $0(int64_t n, int64_t columns, const Slot* slots, const Element* updates, int moves,
                              Element* values) {
  CombineRows<Element, $3>(n, columns, slots, updates, moves, values, Combine());
}
)text";
  return Program(absl::Substitute(kText, kUpdate, ProgramTypeName(dtype), combine, rounds ? "true" : "false"));
}

std::string RowsProgram::Segments(DType dtype, DType source) {
  constexpr char kText[] = R"text(
extern "C" __global__ void $0(int64_t n, const Slot* slots, int64_t* counts) { CountSlots(n, slots, counts); }
extern "C" __global__ void $1(int64_t n, int64_t columns, int scale, const Slot* slots, const $4* source,
                              int64_t source_rows, const $3* x, $3* out) {
  SumChosenRows(n, columns, scale, slots, source, source_rows, x, out);
}
extern "C" __global__ void $2(int64_t n, int64_t columns, int scale, const Slot* slots, const $4* source,
                              int64_t source_rows, const int64_t* counts, const $3* x, $3* out) {
  AddBackRows(n, columns, scale, slots, source, source_rows, counts, x, out);
}
)text";
  return Program(
      absl::Substitute(kText, kCount, kSumChosen, kAddBack, ProgramTypeName(dtype), ProgramTypeName(source)));
}

std::string RowsProgram::Fill(int bytes) {
  constexpr char kText[] = R"text(
extern "C" __global__ void $0(int64_t n, const $1 value, $1* out) {
  ForElements(n, [&](int64_t i) { out[i] = value; });
}
)text";
  return Program(absl::Substitute(kText, kFill, ProgramBytesName(bytes)));
}

}  // namespace millrace
