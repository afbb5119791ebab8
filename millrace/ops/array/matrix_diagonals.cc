#include "millrace/ops/array/matrix_diagonals.h"

#include <algorithm>

#include "millrace/ops/array/int_list.h"
#include "millrace/ops/kernels/strided_copy.h"

namespace millrace {

int64_t DiagonalBand::Length(int64_t d) const {
  return std::min(rows + std::min<int64_t>(0, d), cols - std::max<int64_t>(0, d));
}

int64_t DiagonalBand::Longest() const {
  return std::min(rows + std::min<int64_t>(0, upper), cols - std::max<int64_t>(0, lower));
}

int64_t DiagonalBand::Shift(int64_t d, int64_t longest) const {
  const bool left = (d >= 0 && left_super) || (d <= 0 && left_sub);
  return left ? 0 : longest - Length(d);
}

Status DiagonalBand::Check() const {
  const auto inside = [&](int64_t d) {
    // An empty matrix still has its main diagonal.
    return (-rows < d && d < cols) || d == 0;
  };
  if (lower > upper) {
    return InvalidArgument("lower_diag_index must not be larger than upper_diag_index: ", lower, " > ", upper);
  }
  if (!inside(lower)) {
    return InvalidArgument("lower_diag_index is out of bound: ", lower, ". It must be between ", -rows, " and ", cols);
  }
  if (!inside(upper)) {
    return InvalidArgument("upper_diag_index is out of bound: ", upper, ". It must be between ", -rows, " and ", cols);
  }
  return absl::OkStatus();
}

Status ReadDiagonals(const Tensor& k, DiagonalBand* band) {
  if (k.rank() > 1 || k.num_elements() < 1 || k.num_elements() > 2) {
    return InvalidArgument("diag_index must be a scalar or a vector of 1 or 2 elements, got shape ",
                           k.shape().ToString());
  }
  MR_ASSIGN_OR_RETURN(const IntList list, ReadInts(k, "diag_index"));
  band->lower = list[0];
  band->upper = list.back();
  if (band->lower > band->upper) {
    return InvalidArgument("lower_diag_index must not be larger than upper_diag_index: ", band->lower, " > ",
                           band->upper);
  }
  return absl::OkStatus();
}

Status ReadAlignment(const Node& node, DiagonalBand* band) {
  if (node.FindAttr("align") == nullptr) {
    band->left_super = band->left_sub = true;
    return absl::OkStatus();
  }
  MR_ASSIGN_OR_RETURN(const std::string align, node.Attr<std::string>("align"));
  band->left_super = align == "LEFT_LEFT" || align == "LEFT_RIGHT";
  band->left_sub = align == "LEFT_LEFT" || align == "RIGHT_LEFT";
  return absl::OkStatus();
}

Status CopyBand(KernelContext& ctx, const DiagonalBand& band, int64_t batch, int64_t longest, CopyDiagonals direction,
                const Tensor& from, Tensor* to) {
  for (int64_t d = band.upper; d >= band.lower; --d) {
    const int64_t n = band.Length(d);
    if (n <= 0 || batch == 0) continue;
    const int64_t in_matrix = d >= 0 ? d : -d * band.cols;
    const int64_t in_band = (band.upper - d) * longest + band.Shift(d, longest);
    const int64_t matrix = band.rows * band.cols, stored = band.count() * longest;
    CopyBox box;
    if (direction == CopyDiagonals::kToBand) {
      box.Add(batch, matrix, stored);
      box.Add(n, band.cols + 1, 1);
      MR_RETURN_IF_ERROR(StridedCopy(ctx, std::move(box), from, in_matrix, to, in_band));
    } else {
      box.Add(batch, stored, matrix);
      box.Add(n, 1, band.cols + 1);
      MR_RETURN_IF_ERROR(StridedCopy(ctx, std::move(box), from, in_band, to, in_matrix));
    }
  }
  return absl::OkStatus();
}

Status FillWithPadding(KernelContext& ctx, const Tensor* padding, Tensor* to) {
  if (to->num_elements() == 0) return absl::OkStatus();
  if (padding == nullptr) return ClearTensor(ctx, to);
  CopyBox all;
  all.Add(to->num_elements(), 0, 1);
  return StridedCopy(ctx, std::move(all), *padding, 0, to, 0);
}

}  // namespace millrace
