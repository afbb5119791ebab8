#include "millrace/ops/kernels/reduce.h"

#include <algorithm>

namespace millrace {
namespace {

// Elements per piece of work; determines the shape of the reduction tree above it.
constexpr int64_t kPiece = 65536;
constexpr int64_t kGrain = 32768;
// Rows that are reduced together even when they are very long.
constexpr int64_t kLeastRows = 64;

int64_t PiecesOf(int64_t a, int64_t b) { return (a + b - 1) / b; }

struct Level {
  const char* in;
  size_t element_size;
  ReduceLoops::Row row;
  ReduceLoops::Columns columns;
};

// in[outer][n] to acc[outer][pieces], `step` elements of n each.
void ReduceRows(KernelContext& ctx, const Level& level, int64_t outer, int64_t n, int64_t step, int64_t pieces,
                size_t acc_size, char* acc) {
  const int64_t grain = std::max<int64_t>(1, kGrain / std::max<int64_t>(1, std::min(n, step)));
  ctx.ParallelFor(outer * pieces, grain, [&](int64_t begin, int64_t end) {
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t o = unit / pieces, first = unit % pieces * step;
      level.row(level.in + (o * n + first) * level.element_size, std::min(step, n - first), acc + unit * acc_size);
    }
  });
}

// in[outer][n][inner] to acc[outer][pieces][inner], `step` rows of n each.
void ReduceColumns(KernelContext& ctx, const Level& level, int64_t outer, int64_t n, int64_t inner, int64_t step,
                   int64_t pieces, size_t acc_size, char* acc) {
  const int64_t chunks = PiecesOf(inner, kReduceColumns);
  const int64_t cost = std::max<int64_t>(1, std::min(n, step)) * std::min(inner, kReduceColumns);
  ctx.ParallelFor(outer * pieces * chunks, std::max<int64_t>(1, kGrain / cost), [&](int64_t begin, int64_t end) {
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t column = unit % chunks * kReduceColumns, row_piece = unit / chunks;
      const int64_t o = row_piece / pieces, first = row_piece % pieces * step;
      level.columns(level.in + ((o * n + first) * inner + column) * level.element_size, std::min(step, n - first),
                    inner, std::min(kReduceColumns, inner - column), acc + (row_piece * inner + column) * acc_size);
    }
  });
}

Status ReduceLevel(KernelContext& ctx, const ReduceLoops& loops, const Level& level, int64_t outer, int64_t n,
                   int64_t inner, char* acc) {
  const int64_t step = inner == 1 ? kPiece : std::max(kLeastRows, kPiece / inner);
  const int64_t pieces = std::max<int64_t>(1, PiecesOf(n, step));
  char* to = acc;
  Tensor partial;
  if (pieces > 1) {
    const int64_t bytes = outer * pieces * inner * static_cast<int64_t>(loops.acc_size);
    MR_ASSIGN_OR_RETURN(partial, ctx.AllocateTemp(DType::kUInt8, Shape({bytes})));
    to = static_cast<char*>(partial.raw_data());
  }
  if (inner == 1) {
    ReduceRows(ctx, level, outer, n, step, pieces, loops.acc_size, to);
  } else {
    ReduceColumns(ctx, level, outer, n, inner, step, pieces, loops.acc_size, to);
  }
  if (pieces == 1) return absl::OkStatus();
  return ReduceLevel(ctx, loops, Level{to, loops.acc_size, loops.acc_row, loops.acc_columns}, outer, pieces, inner,
                     acc);
}

int64_t AxisAt(const Tensor& axes, int64_t i) {
  return axes.dtype() == DType::kInt32 ? axes.data<int32_t>()[i] : axes.data<int64_t>()[i];
}

}  // namespace

Status ReduceAxes::Init(const Shape& input, const Tensor& axes, bool keep_dims) {
  const int rank = input.rank();
  if (axes.rank() > 1) {
    return InvalidArgument("reduction axes must be a scalar or a vector, not of shape ", axes.shape().ToString());
  }
  bool reduced[Shape::kMaxRank] = {};
  for (int64_t i = 0; i < axes.num_elements(); ++i) {
    const int64_t given = AxisAt(axes, i);
    if (given < -rank || given >= rank) {
      return InvalidArgument("Invalid reduction dimension (", given, " for input with ", rank, " dimension(s)");
    }
    const int64_t axis = given < 0 ? given + rank : given;
    if (reduced[axis]) {
      return InvalidArgument("Invalid reduction arguments: Axes contains duplicate dimension: ", axis);
    }
    reduced[axis] = true;
  }
  Shape::Dims dims;
  for (int d = 0; d < rank; ++d) {
    const int64_t size = input.dim(d);
    if (!reduced[d]) {
      dims.push_back(size);
    } else {
      reduced_count *= size;
      if (keep_dims) dims.push_back(1);
    }
    if (size == 1) continue;
    if (!runs.empty() && runs.back().reduced == reduced[d]) {
      runs.back().size *= size;
    } else {
      runs.push_back(Run{size, reduced[d]});
    }
  }
  output = Shape(absl::MakeConstSpan(dims));
  return absl::OkStatus();
}

Status ReduceKernel::Compute(KernelContext& ctx) {
  const Tensor& input = ctx.input(0);
  ReduceAxes axes;
  MR_RETURN_IF_ERROR(axes.Init(input.shape(), ctx.input(1), keep_dims_));
  int remaining = 0;
  for (const ReduceAxes::Run& run : axes.runs) remaining += run.reduced;
  if (remaining == 0 && loops_.keeps_one) {
    ctx.SetOutput(0, input.ViewAs(input.dtype(), axes.output));
    return absl::OkStatus();
  }
  MR_ASSIGN_OR_RETURN(Tensor * output, ctx.AllocateOutput(0, axes.output));
  const int64_t results = axes.output.num_elements();
  if (results == 0) return absl::OkStatus();
  if (remaining == 0) {
    axes.runs.push_back({1, true});
    remaining = 1;
  }

  // Innermost dimension first; from the second round on, the inputs are accumulators.
  alignas(16) char small[256];
  Tensor current;
  Level level{static_cast<const char*>(input.raw_data()), SizeOf(input.dtype()), loops_.row, loops_.columns};
  for (; remaining > 0; --remaining) {
    int at = static_cast<int>(axes.runs.size()) - 1;
    while (!axes.runs[at].reduced) --at;
    int64_t outer = 1, inner = 1;
    for (int r = 0; r < at; ++r) outer *= axes.runs[r].size;
    for (int r = at + 1; r < static_cast<int>(axes.runs.size()); ++r) inner *= axes.runs[r].size;
    const int64_t n = axes.runs[at].size;
    const int64_t bytes = outer * inner * static_cast<int64_t>(loops_.acc_size);
    char* acc = small;
    Tensor next;
    if (remaining == 1 && loops_.finish == nullptr) {
      acc = static_cast<char*>(output->raw_data());
    } else if (bytes > static_cast<int64_t>(sizeof(small)) || level.in == small) {
      MR_ASSIGN_OR_RETURN(next, ctx.AllocateTemp(DType::kUInt8, Shape({bytes})));
      acc = static_cast<char*>(next.raw_data());
    }
    MR_RETURN_IF_ERROR(ReduceLevel(ctx, loops_, level, outer, n, inner, acc));
    current = std::move(next);
    level = Level{acc, loops_.acc_size, loops_.acc_row, loops_.acc_columns};
    axes.runs.erase(axes.runs.begin() + at);
  }
  if (loops_.finish != nullptr) loops_.finish(level.in, results, axes.reduced_count, output->raw_data());
  return absl::OkStatus();
}

}  // namespace millrace
