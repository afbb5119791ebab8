#include "millrace/ops/training/optimizer_kernel.h"

#include "millrace/ops/state/striped_rows.h"
#include "millrace/ops/state/variable_access.h"

namespace millrace {
namespace {

// Elements of one piece of a parallel update.
constexpr int64_t kGrain = 16384;
constexpr int64_t kFirst = 0;

int FindInput(const OpSchema& op, absl::string_view name) {
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    if (op.inputs[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

int FindGradient(const OpSchema& op) {
  const int grad = FindInput(op, "grad");
  return grad >= 0 ? grad : FindInput(op, "delta");
}

Status WrongShape(const KernelContext& ctx, int input, const Shape& shape, const Shape& variable) {
  return InvalidArgument(ctx.node().op().inputs[input].name, " has shape ", shape.ToString(),
                         ", which does not fit the variable's shape ", variable.ToString());
}

}  // namespace

OptimizerKernel::OptimizerKernel(KernelInit& init, int variables, absl::Span<const char* const> scalars,
                                 const char* flag)
    : num_variables_(variables), num_scalars_(static_cast<int>(scalars.size())) {
  const OpSchema& op = init.node().op();
  init.Attr("T", &dtype_);
  if (flag != nullptr) init.Attr(flag, &flag_);
  MR_CHECK(variables <= kMaxVariables && num_scalars_ <= kMaxScalars);
  for (int i = 0; i < num_scalars_; ++i) {
    scalar_inputs_[i] = FindInput(op, scalars[i]);
    MR_CHECK(scalar_inputs_[i] >= variables);
  }
  grad_input_ = FindGradient(op);
  MR_CHECK(grad_input_ >= variables);
  indices_input_ = FindInput(op, "indices");
}

void OptimizerKernel::GatherScalars(const KernelContext& ctx, const Tensor** scalars) const {
  for (int i = 0; i < num_scalars_; ++i) scalars[i] = &ctx.input(scalar_inputs_[i]);
}

Status OptimizerKernel::Dense(KernelContext& ctx, absl::Span<const Tensor> from, absl::Span<Tensor> to) const {
  const Tensor& grad = ctx.input(grad_input_);
  for (int i = 0; i < num_variables_; ++i) {
    if (from[i].shape() != from[0].shape()) {
      return WrongShape(ctx, i, from[i].shape(), from[0].shape());
    }
  }
  if (grad.shape() != from[0].shape()) {
    return WrongShape(ctx, grad_input_, grad.shape(), from[0].shape());
  }
  const Tensor* scalars[kMaxScalars];
  GatherScalars(ctx, scalars);
  return ApplyDense(ctx, scalars, from, grad, to);
}

Status OptimizerKernel::ApplyDense(KernelContext& ctx, const Tensor* const* scalars, absl::Span<const Tensor> from,
                                   const Tensor& grad, absl::Span<Tensor> to) const {
  const void* from_data[kMaxVariables];
  void* to_data[kMaxVariables];
  for (int i = 0; i < num_variables_; ++i) {
    from_data[i] = from[i].raw_data();
    to_data[i] = to[i].raw_data();
  }
  const size_t element = SizeOf(dtype_);
  ctx.ParallelFor(grad.num_elements(), kGrain, [&](int64_t begin, int64_t end) {
    apply_(scalars, flag_,
           Runs{.from = from_data,
                .to = to_data,
                .grad = static_cast<const char*>(grad.raw_data()) + begin * element,
                .offsets = &begin,
                .which = absl::MakeConstSpan(&kFirst, 1),
                .size = end - begin});
  });
  return absl::OkStatus();
}

Status OptimizerKernel::Sparse(KernelContext& ctx, const Variable::Rows& variables) const {
  const absl::Span<Tensor> values = variables.values;
  const Tensor& grad = ctx.input(grad_input_);
  const Tensor& indices = ctx.input(indices_input_);
  for (int i = 0; i < num_variables_; ++i) {
    if (values[i].shape() != values[0].shape()) {
      return WrongShape(ctx, i, values[i].shape(), values[0].shape());
    }
  }
  if (indices.rank() != 1) {
    return InvalidArgument("indices must be a vector, but they have shape ", indices.shape().ToString());
  }
  MR_ASSIGN_OR_RETURN(const SliceForm rows, RowSlices(values[0].shape(), indices));
  if (grad.shape() != rows.shape) {
    return InvalidArgument("grad must have shape ", rows.shape.ToString(), " for ", indices.num_elements(),
                           " rows of a variable of shape ", values[0].shape().ToString(), ", not ",
                           grad.shape().ToString());
  }
  const Tensor* scalars[kMaxScalars];
  GatherScalars(ctx, scalars);
  return ApplyRows(ctx, scalars, variables, rows, indices, grad);
}

Status OptimizerKernel::ApplyRows(KernelContext& ctx, const Tensor* const* scalars, const Variable::Rows& variables,
                                  const SliceForm&, const Tensor& indices, const Tensor& grad) const {
  const absl::Span<Tensor> values = variables.values;
  MR_ASSIGN_OR_RETURN(const SliceAddresses rows, RowAddresses(values[0].shape(), indices));
  void* data[kMaxVariables];
  for (int i = 0; i < num_variables_; ++i) data[i] = values[i].raw_data();
  absl::InlinedVector<RowLocks*, kMaxVariables> locks;
  for (const int i : variables.order) locks.push_back(variables.locks[i]);
  ForEachSlice(ctx, RowLayout(values[0]), locks, rows, [&](const SliceBatch& batch) {
    apply_(scalars, flag_,
           Runs{.from = data,
                .to = data,
                .grad = grad.raw_data(),
                .offsets = rows.offsets.data(),
                .which = absl::MakeConstSpan(batch.slices, batch.n),
                .size = rows.size});
  });
  return absl::OkStatus();
}

Status OptimizerKernel::Compute(KernelContext& ctx) {
  RefPtr<Variable> held[kMaxVariables];
  Variable* variables[kMaxVariables];
  for (int i = 0; i < num_variables_; ++i) {
    MR_ASSIGN_OR_RETURN(held[i], VariableInput(ctx, i, dtype_));
    variables[i] = held[i].get();
  }
  for (int i = 0; i < num_scalars_; ++i) {
    const int input = scalar_inputs_[i];
    if (ctx.input(input).num_elements() != 1) {
      return InvalidArgument(ctx.node().op().inputs[input].name, " must be a scalar, but it has shape ",
                             ctx.input(input).shape().ToString());
    }
  }
  const absl::Span<Variable* const> all(variables, num_variables_);
  MR_RETURN_IF_ERROR(ChangeState(ctx, [&](VariableUpdate* by) {
    if (indices_input_ >= 0) {
      return Variable::UpdateRows(
          all, [&](const Variable::Rows& rows) { return Sparse(ctx, rows); }, by);
    }
    if (num_variables_ == 1) {
      return variables[0]->UpdateDense(
          [&](const Tensor& from, Tensor* to) {
            return Dense(ctx, absl::MakeConstSpan(&from, 1), absl::MakeSpan(to, 1));
          },
          by);
    }
    return Variable::UpdateDense(
        all, [&](absl::Span<const Tensor> from, absl::Span<Tensor> to) { return Dense(ctx, from, to); }, by);
  }));
  ForwardReference(ctx);
  return absl::OkStatus();
}

Status OptimizerShape(ShapeContext& c) {
  const OpSchema& op = c.node().op();
  const int grad = FindGradient(op);
  const int indices = FindInput(op, "indices");
  PartialShape variable = VariableShapeOf(c, 0);
  for (int i = 1; i < c.num_inputs(); ++i) {
    const DType type = c.node().input_type(i);
    if (type == DType::kResource || IsRef(type)) {
      MR_ASSIGN_OR_RETURN(variable, variable.MergeWith(VariableShapeOf(c, i)));
    } else if (i != grad && i != indices) {
      MR_RETURN_IF_ERROR(c.WithRank(i, 0).status());
    }
  }
  if (indices < 0) {
    MR_ASSIGN_OR_RETURN(variable, variable.MergeWith(c.input(grad)));
  } else if (variable.known_rank()) {
    MR_ASSIGN_OR_RETURN(const PartialShape rows, c.WithRank(indices, 1));
    if (variable.rank() < 1) return InvalidArgument("the variable of a sparse update is a scalar");
    PartialShape wanted = variable;
    wanted.set_dim(0, rows.dim(0));
    MR_RETURN_IF_ERROR(wanted.MergeWith(c.input(grad)).status());
  }
  if (c.num_outputs() > 0) c.set_output(0, std::move(variable));
  return absl::OkStatus();
}

}  // namespace millrace
