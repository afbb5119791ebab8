// Stacks of tensors that live for one step, used by TensorFlow's loops to save values for gradients.
#include <atomic>
#include <vector>

#include "millrace/base/mutex.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/runtime/resource_manager.h"

namespace millrace {
namespace {

class Stack final : public Resource {
 public:
  Stack(std::string name, DType dtype, int64_t max_size) : name_(std::move(name)), dtype_(dtype), max_size_(max_size) {}

  Status Push(Tensor value) {
    if (value.dtype() != dtype_) {
      return InvalidArgument("Must have type ", dtype_, " but got ", value.dtype());
    }
    MutexLock lock(&mu_);
    MR_RETURN_IF_ERROR(CheckOpen());
    if (max_size_ >= 0 && static_cast<int64_t>(values_.size()) >= max_size_) {
      return InvalidArgument("Stack[", name_, "] overflowed its max_size (", max_size_, ")");
    }
    values_.push_back(std::move(value));
    return absl::OkStatus();
  }

  StatusOr<Tensor> Pop() {
    MutexLock lock(&mu_);
    MR_RETURN_IF_ERROR(CheckOpen());
    if (values_.empty()) return InvalidArgument("Stack[", name_, "] is empty when calling Pop().");
    Tensor value = std::move(values_.back());
    values_.pop_back();
    return value;
  }

  void Close() {
    std::vector<Tensor> dropped;
    MutexLock lock(&mu_);
    closed_ = true;
    dropped.swap(values_);
  }

  std::string DebugString() const override { return absl::StrCat("Stack[", name_, "] of ", DTypeName(dtype_)); }

 private:
  Status CheckOpen() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (closed_) return InvalidArgument("Stack[", name_, "] has already been closed.");
    return absl::OkStatus();
  }

  const std::string name_;
  const DType dtype_;
  const int64_t max_size_;
  Mutex mu_;
  std::vector<Tensor> values_ ABSL_GUARDED_BY(mu_);
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
};

// The handle holds the stack itself, which is destroyed with the handle's last copy.
class StackKernel : public Kernel {
 public:
  explicit StackKernel(KernelInit& init) {
    init.Attr("elem_type", &dtype_);
    init.Attr("stack_name", &name_);
    if (name_.empty()) name_ = init.node().name();
    if (init.status().ok() && !IsKnown(dtype_)) FailDType(init, dtype_);
  }

  Status Compute(KernelContext& ctx) override {
    int64_t max_size = -1;
    if (ctx.num_inputs() > 0) {
      if (ctx.input(0).rank() != 0) {
        return InvalidArgument("Stack size must be a scalar, but had shape: ", ctx.input(0).shape().ToString());
      }
      max_size = ctx.input(0).scalar<int32_t>();
    }
    ResourceHandle handle;
    handle.container = "_stacks";
    handle.name = absl::StrCat(name_, "_", next_.fetch_add(1, std::memory_order_relaxed));
    handle.type_name = "tensorflow::Stack";
    handle.resource = MakeRef<Stack>(handle.name, dtype_, max_size);
    ctx.SetOutput(0, MakeHandleTensor(ctx.output_type(0), std::move(handle)));
    return absl::OkStatus();
  }

 private:
  DType dtype_ = DType::kInvalid;
  std::string name_;
  std::atomic<int64_t> next_{0};
};

class PushKernel : public Kernel {
 public:
  explicit PushKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(RefPtr<Stack> stack, ctx.resource<Stack>(0));
    MR_RETURN_IF_ERROR(stack->Push(ctx.input(1)));
    ctx.SetOutput(0, ctx.input(1));
    return absl::OkStatus();
  }
};

class PopKernel : public Kernel {
 public:
  explicit PopKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(RefPtr<Stack> stack, ctx.resource<Stack>(0));
    MR_ASSIGN_OR_RETURN(Tensor value, stack->Pop());
    if (value.dtype() != ctx.output_type(0)) {
      return Internal("the stack gave a ", value.dtype(), " where a ", ctx.output_type(0), " was declared");
    }
    ctx.SetOutput(0, std::move(value));
    return absl::OkStatus();
  }
};

class StackCloseKernel : public Kernel {
 public:
  explicit StackCloseKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(RefPtr<Stack> stack, ctx.resource<Stack>(0));
    stack->Close();
    return absl::OkStatus();
  }
};

Status PushShape(ShapeContext& c) {
  c.set_output(0, c.input(1));
  return absl::OkStatus();
}

MILLRACE_OP(Stack)
    .Output("handle: Ref(string)")
    .Attr("elem_type: type")
    .Attr("stack_name: string = ''")
    .Stateful()
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("An unbounded stack that lives for one step.");
MILLRACE_OP(StackV2)
    .Input("max_size: int32")
    .Output("handle: resource")
    .Attr("elem_type: type")
    .Attr("stack_name: string = ''")
    .Stateful()
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("A stack that lives for one step.");

#define MR_STACK_PUSH(name, handle)      \
  MILLRACE_OP(name)                      \
      .Input("handle: " handle)          \
      .Input("elem: T")                  \
      .Output("output: T")               \
      .Attr("T: type")                   \
      .Attr("swap_memory: bool = false") \
      .Shape(PushShape)                  \
      .NotDifferentiable()               \
      .Summary("Pushes a tensor onto a stack and returns it.")
MR_STACK_PUSH(StackPush, "Ref(string)");
MR_STACK_PUSH(StackPushV2, "resource").Stateful();

#define MR_STACK_POP(name, handle) \
  MILLRACE_OP(name)                \
      .Input("handle: " handle)    \
      .Output("elem: elem_type")   \
      .Attr("elem_type: type")     \
      .Shape(UnknownShape)         \
      .NotDifferentiable()         \
      .Summary("Pops the last tensor off a stack.")
MR_STACK_POP(StackPop, "Ref(string)");
MR_STACK_POP(StackPopV2, "resource").Stateful();

#define MR_STACK_CLOSE(name, handle) \
  MILLRACE_OP(name)                  \
      .Input("handle: " handle)      \
      .Shape(NoOutputs)              \
      .NotDifferentiable()           \
      .Summary("Deletes a stack before the step ends.")
MR_STACK_CLOSE(StackClose, "Ref(string)");
MR_STACK_CLOSE(StackCloseV2, "resource").Stateful();

MILLRACE_KERNEL(Stack, kCpu, StackKernel);
MILLRACE_KERNEL(StackV2, kCpu, StackKernel);
MILLRACE_KERNEL(StackPush, kCpu, PushKernel);
MILLRACE_KERNEL(StackPushV2, kCpu, PushKernel);
MILLRACE_KERNEL(StackPop, kCpu, PopKernel);
MILLRACE_KERNEL(StackPopV2, kCpu, PopKernel);
MILLRACE_KERNEL(StackClose, kCpu, StackCloseKernel);
MILLRACE_KERNEL(StackCloseV2, kCpu, StackCloseKernel);

}  // namespace
}  // namespace millrace
