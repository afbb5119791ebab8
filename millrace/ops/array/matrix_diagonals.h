// Bands of diagonals of matrices, shared by MatrixDiag, MatrixDiagPart and MatrixSetDiag.
#pragma once

#include "millrace/graph/graph.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/runtime/kernel.h"
#include "millrace/tensor/tensor.h"

namespace millrace {

// Diagonals lower..upper of rows x cols matrices; 0 is the main one, positive ones are above it. They are stored as
// [count, longest], uppermost first, or as [longest] if there is only one; shorter ones are padded according to the
// alignment.
struct DiagonalBand {
  int64_t lower = 0;
  int64_t upper = 0;
  int64_t rows = 0;
  int64_t cols = 0;
  bool left_super = false;  // diagonals above the main one are aligned to the left
  bool left_sub = true;     // those below it

  int64_t count() const { return upper - lower + 1; }
  // Elements of diagonal d.
  int64_t Length(int64_t d) const;
  int64_t Longest() const;
  // The offset of diagonal d in its row of the stored band, given the row's length.
  int64_t Shift(int64_t d, int64_t longest) const;
  // INVALID_ARGUMENT if lower > upper or one is outside the matrices.
  Status Check() const;
};

// Reads k, a scalar or a pair. INVALID_ARGUMENT when it is neither or not in order.
Status ReadDiagonals(const Tensor& k, DiagonalBand* band);
// Takes the alignment from the attr `align`; the first versions of the ops have none and align left.
Status ReadAlignment(const Node& node, DiagonalBand* band);

// Copies all diagonals of `batch` matrices to the band in which they are stored, each row of it `longest` elements
// long, or from there; in host or device memory.
enum class CopyDiagonals { kToBand, kToMatrices };
Status CopyBand(KernelContext& ctx, const DiagonalBand& band, int64_t batch, int64_t longest, CopyDiagonals direction,
                const Tensor& from, Tensor* to);

// Writes the padding, a scalar, to all elements; zeros if it is null.
Status FillWithPadding(KernelContext& ctx, const Tensor* padding, Tensor* to);

}  // namespace millrace
