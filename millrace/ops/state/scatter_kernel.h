// The kernel of all ops that update slices of a variable: by row (ScatterAdd) or by coordinates (ScatterNdAdd), of
// reference and resource variables.
#pragma once

#include "millrace/graph/shape_inference.h"
#include "millrace/ops/state/slice_addresses.h"
#include "millrace/ops/state/striped_rows.h"
#include "millrace/runtime/kernel.h"

namespace millrace {

enum class ScatterOp { kUpdate, kAdd, kSub, kMul, kDiv, kMin, kMax };
enum class ScatterBy { kRow, kCoordinates };

// Inputs 0, 1 and 2 are the variable, indices and updates. All indices are checked before anything is modified. Updates
// of the same slice are applied in index order.
class ScatterKernel : public Kernel {
 public:
  // Applies the slices of `updates` in `batch` (or one scalar for all) to `value`.
  using Apply = void (*)(const SliceAddresses& where, const SliceBatch& batch, const Tensor& updates, Tensor* value);

  ScatterKernel(KernelInit& init, ScatterOp op, ScatterBy by);
  Status Compute(KernelContext& ctx) override;

 protected:
  // Updates rows of a value, or all of it at once: `locks` is empty in the latter case.
  virtual Status Update(KernelContext& ctx, absl::Span<RowLocks* const> locks, Tensor* value) const;
  // INVALID_ARGUMENT unless the updates' shape is `wanted` or, by row, that of a scalar.
  Status CheckUpdates(const KernelContext& ctx, const Shape& shape, const Shape& wanted) const;

  DType dtype() const { return dtype_; }

 private:
  StatusOr<SliceAddresses> Check(const KernelContext& ctx, const Shape& shape) const;

  const DType dtype_;
  const ScatterBy by_;
  const bool divides_integers_;
  BadIndices bad_indices_ = BadIndices::kFail;
  Apply apply_ = nullptr;
};

template <ScatterOp op, ScatterBy by>
class ScatterKernelOf : public ScatterKernel {
 public:
  explicit ScatterKernelOf(KernelInit& init) : ScatterKernel(init, op, by) {}
};

// Null if the op does not support the type.
ScatterKernel::Apply FindScatterApply(ScatterOp op, DType dtype);

// Shape functions: check the updates' shape and forward the reference.
Status ScatterShape(ShapeContext& c);
Status ScatterNdShape(ShapeContext& c);

}  // namespace millrace
