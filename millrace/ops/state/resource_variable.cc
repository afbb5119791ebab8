// Resource variables: VarHandleOp and the ops that use it.
#include "millrace/graph/gradient.h"
#include "millrace/graph/host_memory.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/state/variable_access.h"
#include "millrace/ops/state/variable_source.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

class VarHandleKernel : public Kernel {
 public:
  explicit VarHandleKernel(KernelInit& init) : source_(init) {
    if (init.status().ok() && !IsKnown(source_.dtype())) FailDType(init, source_.dtype());
  }

  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(Tensor handle, source_.Handle(ctx, DType::kResource));
    ctx.SetOutput(0, std::move(handle));
    return absl::OkStatus();
  }

 private:
  VariableSource source_;
};

// Returns a snapshot that shares the variable's memory; later updates do not change it.
class ReadVariableKernel : public Kernel {
 public:
  explicit ReadVariableKernel(KernelInit&) {}

  Status Compute(KernelContext& ctx) override {
    for (int i = 0; i < ctx.num_outputs(); ++i) {
      StatusOr<Tensor> value = Read(ctx, i);
      if (!value.ok()) return value.status();
      ctx.SetOutput(i, *std::move(value));
    }
    return absl::OkStatus();
  }

 private:
  static StatusOr<Tensor> Read(KernelContext& ctx, int i) {
    StatusOr<Tensor> value = VariableValue(ctx, i, ctx.output_type(i));
    if (!absl::IsNotFound(value.status())) return value;
    const ResourceHandle& handle = ctx.input(i).scalar<ResourceHandle>();
    return FailedPrecondition("Error while reading resource variable ", handle.name, " from container ",
                              handle.container, ": the variable was uninitialized");
  }
};

class AssignVariableKernel : public Kernel {
 public:
  explicit AssignVariableKernel(KernelInit& init) {
    init.Attr("dtype", &dtype_);
    init.Attr("validate_shape", &validate_shape_);
  }

  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(RefPtr<Variable> variable, VariableInput(ctx, 0, dtype_));
    const Tensor& value = ctx.input(1);
    // The first value may have any shape, as in TensorFlow.
    if (validate_shape_) {
      const StatusOr<Shape> old = variable->ShapeOfValue();
      if (old.ok() && *old != value.shape()) {
        return InvalidArgument("Trying to assign to variable with tensor with wrong shape. Expected ", old->ToString(),
                               " got ", value.shape().ToString(), " (variable ", variable->name(), ")");
      }
    }
    return ChangeState(ctx, [&](VariableUpdate* by) { return variable->Assign(value, /*validate_shape=*/false, by); });
  }

 private:
  DType dtype_ = DType::kInvalid;
  bool validate_shape_ = false;
};

template <typename Index>
void WriteDims(const Shape& shape, Tensor* out) {
  std::copy(shape.dims().begin(), shape.dims().end(), out->data<Index>());
}

class VariableShapeKernel : public Kernel {
 public:
  explicit VariableShapeKernel(KernelInit&) {}

  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(RefPtr<Variable> variable, ctx.resource<Variable>(0));
    const StatusOr<Shape> known = variable->ShapeOfValue();
    if (!known.ok()) return VariableValue(ctx, 0, variable->dtype()).status();  // the error names it
    const Shape& shape = *known;
    MR_ASSIGN_OR_RETURN(Tensor* const output, ctx.AllocateOutput(0, Shape({shape.rank()})));
    if (output->dtype() == DType::kInt32) {
      for (int64_t dim : shape.dims()) {
        if (dim > std::numeric_limits<int32_t>::max()) {
          return InvalidArgument("dimension ", dim, " does not fit into int32");
        }
      }
      WriteDims<int32_t>(shape, output);
    } else {
      WriteDims<int64_t>(shape, output);
    }
    return absl::OkStatus();
  }
};

class DestroyResourceKernel : public Kernel {
 public:
  explicit DestroyResourceKernel(KernelInit& init) { init.Attr("ignore_lookup_error", &lenient_); }

  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(RefPtr<Resource> resource, ctx.resource<Resource>(0));
    const ResourceHandle& handle = ctx.input(0).scalar<ResourceHandle>();
    // For the user, a variable exists once it is initialized.
    const auto* const variable = dynamic_cast<const Variable*>(resource.get());
    if (variable != nullptr && !variable->IsInitialized() && !lenient_) {
      return NotFound("Resource ", handle.container, "/", handle.name, " does not exist");
    }
    Status deleted =
        ChangeState(ctx, [&](VariableUpdate*) { return ctx.resources()->Delete(handle.container, handle.name); });
    return lenient_ && absl::IsNotFound(deleted) ? absl::OkStatus() : deleted;
  }

 private:
  bool lenient_ = true;
};

// A no-op: reads share memory, and updates copy it only if it is still shared.
class DisableCopyOnReadKernel : public Kernel {
 public:
  explicit DisableCopyOnReadKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override { return ctx.resource<Variable>(0).status(); }
};

Status ReadShape(ShapeContext& c) {
  for (int i = 0; i < c.num_outputs(); ++i) c.set_output(i, c.HandleShape(i));
  return absl::OkStatus();
}

// The gradient with respect to a handle is that of the variable's value.
Status ReadGradient(GradientContext& g) {
  g.set_input_grad(0, g.raw_grad(0));
  return absl::OkStatus();
}

Status AssignVariableShape(ShapeContext& c) { return c.HandleShape(0).MergeWith(c.input(1)).status(); }

Status ShapeOfVariable(ShapeContext& c) {
  const PartialShape shape = c.HandleShape(0);
  c.set_output(0, PartialShape({shape.known_rank() ? shape.rank() : PartialShape::kUnknown}));
  return absl::OkStatus();
}

MILLRACE_OP(VarHandleOp)
    .Output("resource: resource")
    .Attr("container: string = ''")
    .Attr("shared_name: string = ''")
    .Attr("debug_name: string = ''")
    .Attr("dtype: type")
    .Attr("shape: shape")
    .Attr("allowed_devices: list(string) = []")
    .Stateful()
    .Shape(ScalarShape)
    .Trait(OpTrait::kReadsVariable)
    .Summary("A handle of a resource variable.");

MILLRACE_OP(ReadVariableOp)
    .Input("resource: resource")
    .Output("value: dtype")
    .Attr("dtype: type")
    .Stateful()
    .Shape(ReadShape)
    .Gradient(ReadGradient)
    .Trait(OpTrait::kReadsVariable)
    .Summary("The value of a variable.");

MILLRACE_OP(_ReadVariablesOp)
    .Input("resources: N * resource")
    .Output("values: dtypes")
    .Attr("N: int >= 0")
    .Attr("dtypes: list(type) >= 1")
    .Stateful()
    .Shape(ReadShape)
    .Trait(OpTrait::kReadsVariable)
    .Summary("The values of several variables.");

MILLRACE_OP(AssignVariableOp)
    .Input("resource: resource")
    .Input("value: dtype")
    .Attr("dtype: type")
    .Attr("validate_shape: bool = false")
    .Stateful()
    .Shape(AssignVariableShape)
    .NotDifferentiable()
    .Trait(OpTrait::kUpdatesVariable)
    .Summary("Assigns a value to a resource variable.");

MILLRACE_OP(VariableShape)
    .Input("input: resource")
    .Output("output: out_type")
    .Attr("out_type: {int32, int64} = DT_INT32")
    .Stateful()
    .Shape(ShapeOfVariable)
    .NotDifferentiable()
    .Summary("The shape of a variable.");

MILLRACE_OP(DestroyResourceOp)
    .Input("resource: resource")
    .Attr("ignore_lookup_error: bool = true")
    .Stateful()
    .Shape(NoOutputs)
    .NotDifferentiable()
    .Summary("Deletes a resource.");

MILLRACE_OP(DisableCopyOnRead)
    .Input("resource: resource")
    .Stateful()
    .Shape(NoOutputs)
    .NotDifferentiable()
    .Summary("A no-op: reads never copy.");

MILLRACE_KERNEL(VarHandleOp, kCpu, VarHandleKernel);
MILLRACE_KERNEL(ReadVariableOp, kCpu, ReadVariableKernel);
MILLRACE_KERNEL(_ReadVariablesOp, kCpu, ReadVariableKernel);
MILLRACE_KERNEL(AssignVariableOp, kCpu, AssignVariableKernel);
MILLRACE_KERNEL(VariableShape, kCpu, VariableShapeKernel);
MILLRACE_KERNEL(DestroyResourceOp, kCpu, DestroyResourceKernel);
MILLRACE_KERNEL(DisableCopyOnRead, kCpu, DisableCopyOnReadKernel);

// None of these kernels accesses elements: handles are in host memory, and values share memory on any device.
MILLRACE_KERNEL(VarHandleOp, kCuda, VarHandleKernel);
MILLRACE_KERNEL(ReadVariableOp, kCuda, ReadVariableKernel);
MILLRACE_KERNEL(_ReadVariablesOp, kCuda, ReadVariableKernel);
MILLRACE_KERNEL(AssignVariableOp, kCuda, AssignVariableKernel);
MILLRACE_KERNEL(VariableShape, kCuda, VariableShapeKernel);
MILLRACE_HOST_MEMORY(VariableShape, "GPU", "output");
MILLRACE_KERNEL(DestroyResourceOp, kCuda, DestroyResourceKernel);
MILLRACE_KERNEL(DisableCopyOnRead, kCuda, DisableCopyOnReadKernel);

}  // namespace
}  // namespace millrace
