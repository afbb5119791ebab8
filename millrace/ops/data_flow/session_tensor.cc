// GetSessionHandle and related ops: keep a tensor in the task between steps, under a handle that the client holds.
#include <atomic>

#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/runtime/resource_manager.h"

namespace millrace {
namespace {

// A container name that clients do not use.
constexpr char kSessionTensorContainer[] = "__session_tensors__";

class SessionTensor : public Resource {
 public:
  explicit SessionTensor(Tensor value) : value(std::move(value)) {}
  std::string DebugString() const override { return "session tensor " + value.DebugString(); }
  const Tensor value;
};

Status NotStored(const std::string& handle) {
  return InvalidArgument("The tensor with handle '", handle, "' is not in the session store.");
}

StatusOr<const std::string*> HandleInput(const KernelContext& ctx) {
  if (ctx.resources() == nullptr) return Internal("the step has no resource manager");
  if (ctx.input(0).num_elements() != 1) {
    return InvalidArgument("handle must be a scalar, but has shape ", ctx.input(0).shape().ToString());
  }
  return ctx.input(0).data<std::string>();
}

class GetSessionHandleKernel : public Kernel {
 public:
  explicit GetSessionHandleKernel(KernelInit&) {}
  bool is_recorded() const override { return true; }
  Status Compute(KernelContext& ctx) override {
    if (ctx.resources() == nullptr) return Internal("the step has no resource manager");
    static std::atomic<int64_t> next{0};
    // TensorFlow's format, which its clients parse: node, number, device.
    std::string handle = absl::StrCat(ctx.node().name(), ";", next.fetch_add(1), ";", ctx.device()->name());
    const UpdateOrigin origin = UpdateOrigin::Of(ctx);
    MR_RETURN_IF_ERROR(ctx.resources()->Update(origin, [&] {
      return ctx.resources()->Create(kSessionTensorContainer, handle, MakeRef<SessionTensor>(ctx.input(0)));
    }));
    if (ctx.output_type(0) == DType::kString) {
      ctx.SetOutput(0, Tensor::Scalar(std::move(handle)));
      return absl::OkStatus();
    }
    ResourceHandle resource;
    resource.device = ctx.device()->name();
    resource.container = kSessionTensorContainer;
    resource.name = std::move(handle);
    resource.type_name = "N10tensorflow6TensorE";
    ctx.SetOutput(0, MakeHandleTensor(DType::kResource, std::move(resource)));
    return absl::OkStatus();
  }
};

class GetSessionTensorKernel : public Kernel {
 public:
  explicit GetSessionTensorKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const std::string* handle, HandleInput(ctx));
    const StatusOr<RefPtr<SessionTensor>> found =
        ctx.resources()->Lookup<SessionTensor>(kSessionTensorContainer, *handle);
    if (!found.ok()) return NotStored(*handle);
    if ((*found)->value.dtype() != ctx.output_type(0)) {
      return InvalidArgument("the tensor with handle '", *handle, "' is of type ", (*found)->value.dtype(), ", not ",
                             ctx.output_type(0));
    }
    ctx.SetOutput(0, (*found)->value);
    return absl::OkStatus();
  }
};

class DeleteSessionTensorKernel : public Kernel {
 public:
  explicit DeleteSessionTensorKernel(KernelInit&) {}
  bool is_recorded() const override { return true; }
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const std::string* handle, HandleInput(ctx));
    const UpdateOrigin origin = UpdateOrigin::Of(ctx);
    const Status deleted =
        ctx.resources()->Update(origin, [&] { return ctx.resources()->Delete(kSessionTensorContainer, *handle); });
    return deleted.ok() ? deleted : NotStored(*handle);
  }
};

Status HandleShape(ShapeContext& c) {
  MR_RETURN_IF_ERROR(c.WithRank(0, 0).status());
  return UnknownShape(c);
}

MILLRACE_OP(GetSessionHandle)
    .Summary("Stores a tensor for later steps and returns its handle.")
    .Input("value: T")
    .Output("handle: string")
    .Attr("T: type")
    .Stateful()
    .Shape(ScalarShape)
    .NotDifferentiable();
MILLRACE_OP(GetSessionHandleV2)
    .Summary("GetSessionHandle with a resource handle.")
    .Input("value: T")
    .Output("handle: resource")
    .Attr("T: type")
    .Stateful()
    .Shape(ScalarShape)
    .NotDifferentiable();
MILLRACE_OP(GetSessionTensor)
    .Summary("The tensor stored under a handle.")
    .Input("handle: string")
    .Output("value: dtype")
    .Attr("dtype: type")
    .Stateful()
    .Shape(HandleShape)
    .NotDifferentiable();
MILLRACE_OP(DeleteSessionTensor)
    .Summary("Deletes the tensor stored under a handle.")
    .Input("handle: string")
    .Stateful()
    .Shape(HandleShape);
MILLRACE_KERNEL(GetSessionHandle, kCpu, GetSessionHandleKernel);
MILLRACE_KERNEL(GetSessionHandleV2, kCpu, GetSessionHandleKernel);
MILLRACE_KERNEL(GetSessionTensor, kCpu, GetSessionTensorKernel);
MILLRACE_KERNEL(DeleteSessionTensor, kCpu, DeleteSessionTensorKernel);

}  // namespace
}  // namespace millrace
