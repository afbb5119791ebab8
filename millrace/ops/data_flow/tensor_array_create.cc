// TensorArray, TensorArrayGrad, TensorArraySize and TensorArrayClose.
#include <atomic>

#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/data_flow/tensor_array.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/runtime/step_resources.h"

namespace millrace {
namespace {

// Registers an array by name for the old ops, which look it up.
Status Publish(KernelContext& ctx, RefPtr<TensorArray> array) {
  if (ctx.step().step_resources == nullptr) return Internal("the step has no place for its resources");
  const std::string name = array->name();
  return ctx.step().step_resources->Create(name, std::move(array));
}

class TensorArrayKernel : public Kernel {
 public:
  explicit TensorArrayKernel(KernelInit& init) {
    init.Attr("dtype", &options_.dtype);
    init.Attr("element_shape", &options_.element_shape);
    init.Attr("dynamic_size", &options_.dynamic_size);
    init.Attr("clear_after_read", &options_.clear_after_read);
    init.Attr("tensor_array_name", &options_.name);
    if (options_.name.empty()) options_.name = init.node().name();
    options_.identical_element_shapes = init.node().AttrOr<bool>("identical_element_shapes", false);
    if (init.status().ok() && !IsKnown(options_.dtype)) FailDType(init, options_.dtype);
  }

  Status Compute(KernelContext& ctx) override {
    const Tensor& size = ctx.input(0);
    if (size.rank() != 0) {
      return InvalidArgument("TensorArray size must be scalar, but had shape: ", size.shape().ToString());
    }
    TensorArray::Options options = options_;
    options.size = size.scalar<int32_t>();
    if (options.size < 0) return InvalidArgument("Size should be >= 0.");
    options.name = absl::StrCat(options_.name, "_", next_.fetch_add(1, std::memory_order_relaxed));
    RefPtr<TensorArray> array = MakeRef<TensorArray>(std::move(options));
    const DType handle_dtype = ctx.output_type(0);
    if (handle_dtype != DType::kResource) MR_RETURN_IF_ERROR(Publish(ctx, array));
    if (handle_dtype == DType::kString) {
      ctx.SetOutput(0, TensorArrayNameTensor(*array));
    } else {
      ResourceHandle handle;
      handle.container = "_tensor_arrays";
      handle.name = array->name();
      handle.type_name = "tensorflow::TensorArray";
      handle.resource = std::move(array);
      ctx.SetOutput(0, MakeHandleTensor(handle_dtype, std::move(handle)));
    }
    if (ctx.num_outputs() > 1) ctx.SetOutput(1, Tensor::Scalar<float>(0));
    return absl::OkStatus();
  }

 private:
  TensorArray::Options options_;
  std::atomic<int64_t> next_{0};
};

class TensorArrayGradKernel : public Kernel {
 public:
  explicit TensorArrayGradKernel(KernelInit& init) { init.Attr("source", &source_); }

  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(TensorArray* const array, TensorArrayInput(ctx));
    Shape prepend;
    if (ctx.num_inputs() > 2) {
      const Tensor& dims = ctx.input(2);
      if (dims.rank() != 1) {
        return InvalidArgument("shape_to_prepend must be a vector, but had shape: ", dims.shape().ToString());
      }
      const Shape::Dims wide(dims.flat<int32_t>().begin(), dims.flat<int32_t>().end());
      MR_ASSIGN_OR_RETURN(prepend, Shape::Make(wide));
    }
    const DType handle_dtype = ctx.output_type(0);
    MR_ASSIGN_OR_RETURN(
        Tensor handle,
        array->Gradient(source_, prepend, handle_dtype == DType::kString ? DType::kResource : handle_dtype));
    if (handle_dtype != DType::kResource) {
      auto* const gradient = static_cast<TensorArray*>(handle.scalar<ResourceHandle>().resource.get());
      const Status published = Publish(ctx, ShareRef(gradient));
      if (!published.ok() && !absl::IsAlreadyExists(published)) return published;
      if (handle_dtype == DType::kString) handle = TensorArrayNameTensor(*gradient);
    }
    ctx.SetOutput(0, std::move(handle));
    if (ctx.num_outputs() > 1) ctx.SetOutput(1, ctx.input(1));
    return absl::OkStatus();
  }

 private:
  std::string source_;
};

class TensorArraySizeKernel : public Kernel {
 public:
  explicit TensorArraySizeKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const TensorArray* const array, TensorArrayInput(ctx));
    ctx.SetOutput(0, Tensor::Scalar<int32_t>(static_cast<int32_t>(array->size())));
    return absl::OkStatus();
  }
};

class TensorArrayCloseKernel : public Kernel {
 public:
  explicit TensorArrayCloseKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(TensorArray* const array, TensorArrayInput(ctx));
    array->Close();
    return absl::OkStatus();
  }
};

// Shapes of a handle and a flow, or of a pair of names.
Status TensorArrayHandleShape(ShapeContext& c) {
  c.set_output(0, c.node().output_type(0) == DType::kResource ? PartialShape::Scalar() : PartialShape({2}));
  if (c.num_outputs() > 1) c.set_output(1, PartialShape::Scalar());
  return absl::OkStatus();
}

MILLRACE_OP(TensorArray)
    .Input("size: int32")
    .Output("handle: Ref(string)")
    .Attr("dtype: type")
    .Attr("dynamic_size: bool = false")
    .Attr("clear_after_read: bool = true")
    .Attr("tensor_array_name: string = ''")
    .Attr("element_shape: shape = { unknown_rank: true }")
    .Stateful()
    .Shape(TensorArrayHandleShape)
    .NotDifferentiable()
    .Summary("An old form of TensorArrayV3.");
MILLRACE_OP(TensorArrayV2)
    .Input("size: int32")
    .Output("handle: string")
    .Attr("dtype: type")
    .Attr("element_shape: shape = { unknown_rank: true }")
    .Attr("dynamic_size: bool = false")
    .Attr("clear_after_read: bool = true")
    .Attr("tensor_array_name: string = ''")
    .Stateful()
    .Shape(TensorArrayHandleShape)
    .NotDifferentiable()
    .Summary("An old form of TensorArrayV3.");
MILLRACE_OP(TensorArrayV3)
    .Input("size: int32")
    .Output("handle: resource")
    .Output("flow: float")
    .Attr("dtype: type")
    .Attr("element_shape: shape = { unknown_rank: true }")
    .Attr("dynamic_size: bool = false")
    .Attr("clear_after_read: bool = true")
    .Attr("identical_element_shapes: bool = false")
    .Attr("tensor_array_name: string = ''")
    .Stateful()
    .Shape(TensorArrayHandleShape)
    .NotDifferentiable()
    .Summary("An array of tensors that lives for one step.");

MILLRACE_OP(TensorArrayGrad)
    .Input("handle: string")
    .Input("flow_in: float")
    .Output("grad_handle: Ref(string)")
    .Attr("source: string")
    .Stateful()
    .Shape(TensorArrayHandleShape)
    .NotDifferentiable()
    .Summary("An old form of TensorArrayGradV3.");
MILLRACE_OP(TensorArrayGradV2)
    .Input("handle: string")
    .Input("flow_in: float")
    .Output("grad_handle: string")
    .Attr("source: string")
    .Stateful()
    .Shape(TensorArrayHandleShape)
    .NotDifferentiable()
    .Summary("An old form of TensorArrayGradV3.");
MILLRACE_OP(TensorArrayGradV3)
    .Input("handle: resource")
    .Input("flow_in: float")
    .Output("grad_handle: resource")
    .Output("flow_out: float")
    .Attr("source: string")
    .Stateful()
    .Shape(TensorArrayHandleShape)
    .NotDifferentiable()
    .Summary("The TensorArray that accumulates the gradients of another one.");
MILLRACE_OP(TensorArrayGradWithShape)
    .Input("handle: resource")
    .Input("flow_in: float")
    .Input("shape_to_prepend: int32")
    .Output("grad_handle: resource")
    .Output("flow_out: float")
    .Attr("source: string")
    .Stateful()
    .Shape(TensorArrayHandleShape)
    .NotDifferentiable()
    .Summary("TensorArrayGradV3 with additional leading dimensions in the elements.");

#define MR_ARRAY_SIZE(name, handle) \
  MILLRACE_OP(name)                 \
      .Input("handle: " handle)     \
      .Input("flow_in: float")      \
      .Output("size: int32")        \
      .Shape(ScalarShape)           \
      .NotDifferentiable()          \
      .Summary("The number of elements in a TensorArray.")
MR_ARRAY_SIZE(TensorArraySize, "Ref(string)");
MR_ARRAY_SIZE(TensorArraySizeV2, "string");
MR_ARRAY_SIZE(TensorArraySizeV3, "resource").Stateful();

#define MR_ARRAY_CLOSE(name, handle) \
  MILLRACE_OP(name)                  \
      .Input("handle: " handle)      \
      .Shape(NoOutputs)              \
      .NotDifferentiable()           \
      .Summary("Deletes a TensorArray before the step ends.")
MR_ARRAY_CLOSE(TensorArrayClose, "Ref(string)");
MR_ARRAY_CLOSE(TensorArrayCloseV2, "string");
MR_ARRAY_CLOSE(TensorArrayCloseV3, "resource").Stateful();

MILLRACE_KERNEL(TensorArray, kCpu, TensorArrayKernel);
MILLRACE_KERNEL(TensorArrayV2, kCpu, TensorArrayKernel);
MILLRACE_KERNEL(TensorArrayV3, kCpu, TensorArrayKernel);
MILLRACE_KERNEL(TensorArrayGrad, kCpu, TensorArrayGradKernel);
MILLRACE_KERNEL(TensorArrayGradV2, kCpu, TensorArrayGradKernel);
MILLRACE_KERNEL(TensorArrayGradV3, kCpu, TensorArrayGradKernel);
MILLRACE_KERNEL(TensorArrayGradWithShape, kCpu, TensorArrayGradKernel);
MILLRACE_KERNEL(TensorArraySize, kCpu, TensorArraySizeKernel);
MILLRACE_KERNEL(TensorArraySizeV2, kCpu, TensorArraySizeKernel);
MILLRACE_KERNEL(TensorArraySizeV3, kCpu, TensorArraySizeKernel);
MILLRACE_KERNEL(TensorArrayClose, kCpu, TensorArrayCloseKernel);
MILLRACE_KERNEL(TensorArrayCloseV2, kCpu, TensorArrayCloseKernel);
MILLRACE_KERNEL(TensorArrayCloseV3, kCpu, TensorArrayCloseKernel);

}  // namespace
}  // namespace millrace
