#include "millrace/ops/quantize/ranges.h"

namespace millrace {

StatusOr<PartialShape> RangeShape(ShapeContext& c, int64_t axis, int min, int max) {
  if (axis < -1) return InvalidArgument("axis should be at least -1, got ", axis);
  c.set_output(0, c.input(0));
  const int rank = axis == -1 ? 0 : 1;
  MR_ASSIGN_OR_RETURN(PartialShape range, c.WithRank(min, rank));
  MR_ASSIGN_OR_RETURN(const PartialShape upper, c.WithRank(max, rank));
  MR_ASSIGN_OR_RETURN(range, range.MergeWith(upper));
  if (axis == -1 || !c.input(0).known_rank()) return range;
  if (c.input(0).rank() <= axis) {
    return InvalidArgument("Shape must be at least rank ", axis + 1, " but is rank ", c.input(0).rank());
  }
  return range.MergeWith(PartialShape({c.input(0).dim(static_cast<int>(axis))}));
}

Status QuantizeShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(const int64_t axis, c.Attr<int64_t>("axis"));
  MR_ASSIGN_OR_RETURN(const PartialShape range, RangeShape(c, axis, 1, 2));
  for (int i = 1; i < c.num_outputs(); ++i) c.set_output(i, range);
  return absl::OkStatus();
}

}  // namespace millrace
