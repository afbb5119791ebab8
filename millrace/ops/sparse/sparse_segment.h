// Shared by SparseSegmentSum, its variants and their gradient ops.
#pragma once

#include <cmath>

#include "millrace/graph/shape_inference.h"
#include "millrace/ops/kernels/index_input.h"

namespace millrace {

// How a segment's sum is scaled.
enum class SegmentScale { kSum, kMean, kSqrtN };

inline double SegmentFactor(SegmentScale scale, int64_t count) {
  switch (scale) {
    case SegmentScale::kMean:
      return 1.0 / static_cast<double>(count);
    case SegmentScale::kSqrtN:
      return 1.0 / std::sqrt(static_cast<double>(count));
    default:
      return 1.0;
  }
}

// INVALID_ARGUMENT unless indices and segment ids are vectors of one length. `name` is what `data` is called.
inline Status CheckSegmentShapes(const Tensor& data, const Tensor& indices, const Tensor& ids, const char* name) {
  if (data.rank() < 1) return InvalidArgument(name, " must have at least one dimension");
  if (indices.rank() != 1) return InvalidArgument("indices should be a vector.");
  if (ids.rank() != 1) return InvalidArgument("segment_ids should be a vector.");
  if (ids.num_elements() != indices.num_elements()) {
    return InvalidArgument("segment_ids and indices should have same size.");
  }
  return absl::OkStatus();
}

// Prefix of the error if there are too many segments.
inline constexpr char kSegmentsOverflow[] = "Encountered overflow when multiplying the dimensions of the output: ";

// The number of segments that input i gives. INVALID_ARGUMENT if it is less than `used`.
inline StatusOr<int64_t> GivenSegments(const KernelContext& ctx, int i, int64_t used) {
  MR_ASSIGN_OR_RETURN(const int64_t given, ScalarInput(ctx, i, "num_segments"));
  if (given < used) return InvalidArgument("segment ids must be < num_segments");
  return given;
}

// Shape function: `shape` with another number of rows, given by input `count_input` unless that is negative. Input 2
// has the segment ids.
inline Status SegmentRows(ShapeContext& c, PartialShape shape, int count_input) {
  MR_RETURN_IF_ERROR(c.WithRank(2, 1).status());
  int64_t rows = PartialShape::kUnknown;
  if (count_input >= 0) {
    MR_RETURN_IF_ERROR(c.WithRank(count_input, 0).status());
    if (const Tensor* count = c.constant(count_input)) rows = IntAt(*count, 0);
    if (rows < -1) return InvalidArgument("the number of rows must not be negative: ", rows);
  }
  if (!shape.known_rank() || shape.rank() == 0) return absl::OkStatus();
  shape.set_dim(0, rows);
  c.set_output(0, std::move(shape));
  return absl::OkStatus();
}

// The same for input 0, whose rows input 1 selects.
inline Status SparseSegmentRows(ShapeContext& c, int count_input) {
  MR_ASSIGN_OR_RETURN(PartialShape shape, c.WithRankAtLeast(0, 1));
  MR_RETURN_IF_ERROR(c.WithRank(1, 1).status());
  return SegmentRows(c, std::move(shape), count_input);
}
}  // namespace millrace
