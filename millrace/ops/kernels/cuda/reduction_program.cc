#include "millrace/ops/kernels/cuda/reduction_program.h"

#include <algorithm>

#include "absl/strings/substitute.h"
#include "millrace/ops/kernels/cuda/elementwise_program.h"
#include "millrace/ops/kernels/cuda/program_headers.h"

namespace millrace {

std::string ReductionProgram::Headers() { return absl::StrCat(kProgramPrelude, kProgramFunctors, kProgramReductions); }

std::string ReductionProgram::Text(DType dtype) const { return absl::StrCat(Headers(), Kernels(dtype)); }

std::string ReductionProgram::Kernels(DType dtype, const std::string& suffix) const {
  constexpr char kText[] = R"text(
namespace millrace {
namespace reduction$6 {
using Element = $0;
using Acc = decltype(Widen(Element()));
struct Load {
  __device__ Acc operator()(Element element) const {
    const Acc x = Widen(element);
    return $1;
  }
};
struct Same {
  __device__ Acc operator()(Acc a) const { return a; }
};
struct Finish {
  Element* out;
  int64_t count;
  __device__ void operator()(int64_t i, Acc a) const { out[i] = Narrow<Element>($2); }
};
struct Keep {
  Acc* out;
  __device__ void operator()(int64_t i, Acc a) const { out[i] = a; }
};
extern "C" __global__ void $3$6(const Reduction r, const Element* in, Element* out) {
  ReducePiece<Acc, $7>(r, in, $8, Load(), Finish{out, r.count});
}
extern "C" __global__ void $4$6(const Reduction r, const Element* in, Acc* out) {
  ReducePiece<Acc, $7>(r, in, $8, Load(), Keep{out});
}
extern "C" __global__ void $5$6(const Reduction r, int64_t count, const Acc* in, Element* out) {
  ReducePiece<Acc, $7>(r, in, $8, Same(), Finish{out, count});
}
}  // namespace reduction$6
}  // namespace millrace
)text";
  return absl::Substitute(kText, ProgramTypeName(dtype), load, finish, kWhole, kPieces, kJoin, suffix, combine,
                          identity);
}

namespace {

int64_t CeilOf(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

void ReductionPlan::Reduction::Keep(int64_t size, int64_t stride) {
  kept_size[kept_rank] = size;
  kept_stride[kept_rank++] = stride;
  outputs *= size;
}

void ReductionPlan::Reduction::Reduce(int64_t size, int64_t stride) {
  reduced_size[reduced_rank] = size;
  reduced_stride[reduced_rank++] = stride;
  count *= size;
}

StatusOr<ReductionPlan> ReductionPlan::Of(absl::Span<const ReduceAxes::Run> runs) {
  if (runs.size() > static_cast<size_t>(Reduction::kMostDims)) {
    return Unimplemented("a reduction over ", runs.size(), " dimensions on a GPU, which takes at most ",
                         Reduction::kMostDims);
  }
  ReductionPlan plan;
  Reduction& r = plan.first.reduction;
  int64_t stride = 1;
  for (size_t i = runs.size(); i-- > 0;) stride *= runs[i].size;
  for (const ReduceAxes::Run& run : runs) {
    stride = run.size == 0 ? 0 : stride / run.size;
    run.reduced ? r.Reduce(run.size, stride) : r.Keep(run.size, stride);
  }
  r.by_columns = !runs.empty() && !runs.back().reduced;

  // A block is 8 lanes for each of 32 outputs, whose elements are neighbours, or 32 lanes for each of 8, or all for
  // one.
  constexpr int64_t kLongRow = 1024, kEnoughBlocks = 512, kMostBlocks = 1024, kLeastPiece = 4096;
  const int64_t outputs = r.by_columns ? 32 : r.count > kLongRow ? 1 : 8, lanes = 256 / outputs;
  plan.first.threads[0] = static_cast<unsigned>(r.by_columns ? outputs : lanes);
  plan.first.threads[1] = static_cast<unsigned>(r.by_columns ? lanes : outputs);
  const int64_t along = CeilOf(r.outputs, outputs);
  int64_t pieces = 1;
  r.step = std::max<int64_t>(r.count, 1);
  if (along < kEnoughBlocks && r.count > 2 * kLeastPiece) {
    const int64_t wanted = std::min(CeilOf(r.count, kLeastPiece), kMostBlocks / std::max<int64_t>(along, 1));
    r.step = CeilOf(CeilOf(r.count, wanted), lanes) * lanes;
    pieces = CeilOf(r.count, r.step);
  }
  plan.first.blocks[0] = static_cast<unsigned>(along);
  plan.first.blocks[1] = static_cast<unsigned>(pieces);

  Reduction& join = plan.join.reduction;
  join.Keep(r.outputs, 1);
  join.Reduce(pieces, r.outputs);
  join.by_columns = 1;
  join.step = pieces;
  plan.join.threads[0] = 32;
  plan.join.threads[1] = 8;
  plan.join.blocks[0] = static_cast<unsigned>(CeilOf(r.outputs, 32));
  return plan;
}

}  // namespace millrace
