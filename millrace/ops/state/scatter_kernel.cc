#include "millrace/ops/state/scatter_kernel.h"

#include "millrace/ops/state/variable_access.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

bool HasZero(const Tensor& integers) {
  bool found = false;
  DispatchType(IntTypes{}, integers.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    for (T v : integers.flat<T>()) found |= v == 0;
  });
  return found;
}

// Checks that two shapes agree in the dimensions from `a_begin` and `b_begin` on.
Status CheckTail(const PartialShape& a, int a_begin, const PartialShape& b, int b_begin) {
  if (a.rank() - a_begin != b.rank() - b_begin) {
    return InvalidArgument("updates of shape ", b.ToString(), " do not fit a variable of shape ", a.ToString());
  }
  for (int i = 0; a_begin + i < a.rank(); ++i) {
    const int64_t x = a.dim(a_begin + i), y = b.dim(b_begin + i);
    if (x >= 0 && y >= 0 && x != y) {
      return InvalidArgument("updates of shape ", b.ToString(), " do not fit a variable of shape ", a.ToString());
    }
  }
  return absl::OkStatus();
}

}  // namespace

ScatterKernel::ScatterKernel(KernelInit& init, ScatterOp op, ScatterBy by)
    : dtype_(init.input_type(2)), by_(by), divides_integers_(op == ScatterOp::kDiv && IsInteger(init.input_type(2))) {
  apply_ = FindScatterApply(op, dtype_);
  if (apply_ == nullptr) FailDType(init, dtype_);
  if (init.node().FindAttr("bad_indices_policy") != nullptr) {
    std::string policy;
    init.Attr("bad_indices_policy", &policy);
    StatusOr<BadIndices> bad = ParseBadIndices(policy);
    if (bad.ok()) {
      bad_indices_ = *bad;
    } else {
      init.Fail(bad.status());
    }
  }
}

Status ScatterKernel::CheckUpdates(const KernelContext& ctx, const Shape& shape, const Shape& wanted) const {
  const Tensor& updates = ctx.input(2);
  const bool scalar = by_ == ScatterBy::kRow && updates.rank() == 0;
  if (scalar || updates.shape() == wanted) return absl::OkStatus();
  return InvalidArgument("updates must have shape ", wanted.ToString(), " for indices of shape ",
                         ctx.input(1).shape().ToString(), " into a variable of shape ", shape.ToString(), ", not ",
                         updates.shape().ToString());
}

StatusOr<SliceAddresses> ScatterKernel::Check(const KernelContext& ctx, const Shape& shape) const {
  const Tensor& indices = ctx.input(1);
  StatusOr<SliceAddresses> where =
      by_ == ScatterBy::kRow ? RowAddresses(shape, indices) : NdAddresses(shape, indices, bad_indices_);
  if (!where.ok()) return where;
  MR_RETURN_IF_ERROR(CheckUpdates(ctx, shape, where->shape));
  if (divides_integers_ && HasZero(ctx.input(2))) return InvalidArgument("division by zero");
  return where;
}

Status ScatterKernel::Update(KernelContext& ctx, absl::Span<RowLocks* const> locks, Tensor* value) const {
  MR_ASSIGN_OR_RETURN(const SliceAddresses where, Check(ctx, value->shape()));
  const Tensor& updates = ctx.input(2);
  if (!locks.empty()) {
    ForEachSlice(ctx, RowLayout(*value), locks, where,
                 [&](const SliceBatch& batch) { apply_(where, batch, updates, value); });
    return absl::OkStatus();
  }
  for (int64_t i = 0; i < static_cast<int64_t>(where.offsets.size()); ++i) apply_(where, {&i, 1, 1}, updates, value);
  return absl::OkStatus();
}

Status ScatterKernel::Compute(KernelContext& ctx) {
  MR_ASSIGN_OR_RETURN(RefPtr<Variable> variable, VariableInput(ctx, 0, dtype_));
  Variable* const only[] = {variable.get()};
  const auto update = [&](absl::Span<RowLocks* const> locks, Tensor* value) -> Status {
    if (by_ != ScatterBy::kRow && value->rank() == 0)
      return InvalidArgument("Output must be at least 1-D, but the variable is a scalar");
    return Update(ctx, locks, value);
  };
  // Coordinates of depth 0 select the whole tensor, which is not a row.
  const bool whole =
      by_ == ScatterBy::kCoordinates && ctx.input(1).rank() > 0 && ctx.input(1).dim(ctx.input(1).rank() - 1) == 0;
  MR_RETURN_IF_ERROR(ChangeState(ctx, [&](VariableUpdate* by) {
    if (whole) {
      return Variable::UpdateInPlace(
          only, [&](absl::Span<Tensor> values) { return update({}, &values[0]); }, by);
    }
    return Variable::UpdateRows(
        only, [&](const Variable::Rows& rows) { return update(rows.locks, &rows.values[0]); }, by);
  }));
  ForwardReference(ctx);
  return absl::OkStatus();
}

Status ScatterShape(ShapeContext& c) {
  MR_RETURN_IF_ERROR(UpdatedVariableShape(c));
  const PartialShape variable = VariableShapeOf(c, 0);
  const PartialShape& indices = c.input(1);
  const PartialShape& updates = c.input(2);
  if (!variable.known_rank() || !indices.known_rank() || !updates.known_rank()) {
    return absl::OkStatus();
  }
  if (variable.rank() < 1) return InvalidArgument("the variable must not be a scalar");
  if (updates.rank() == 0) return absl::OkStatus();
  return CheckTail(variable, 1, updates, indices.rank());
}

Status ScatterNdShape(ShapeContext& c) {
  MR_RETURN_IF_ERROR(UpdatedVariableShape(c));
  const PartialShape variable = VariableShapeOf(c, 0);
  const PartialShape& indices = c.input(1);
  const PartialShape& updates = c.input(2);
  if (!variable.known_rank() || !indices.known_rank() || !updates.known_rank()) {
    return absl::OkStatus();
  }
  if (indices.rank() < 1) return InvalidArgument("indices must be at least a vector");
  const int64_t depth = indices.dim(indices.rank() - 1);
  if (depth < 0) return absl::OkStatus();
  if (depth > variable.rank()) {
    return InvalidArgument("indices of ", depth, " coordinates into a variable of shape ", variable.ToString());
  }
  return CheckTail(variable, static_cast<int>(depth), updates, indices.rank() - 1);
}

}  // namespace millrace
