// InplaceUpdate, InplaceAdd and InplaceSub modify rows of a tensor; DeepCopy makes an unshared copy; Empty makes a
// tensor of zeros.
#include <cstring>

#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/array/int_list.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/tensor/copy_elements.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

enum class RowChange { kUpdate, kAdd, kSub };

template <typename T>
void ChangeRow(RowChange change, const T* from, T* to, int64_t n) {
  if (change == RowChange::kAdd) {
    for (int64_t i = 0; i < n; ++i) to[i] = static_cast<T>(to[i] + from[i]);
  } else {
    for (int64_t i = 0; i < n; ++i) to[i] = static_cast<T>(to[i] - from[i]);
  }
}

// Modifies the tensor in place if it is not shared; otherwise copies it first, so that other readers never see the
// change.
class InplaceKernel : public Kernel {
 public:
  explicit InplaceKernel(KernelInit& init)
      : change_(init.node().is_type("InplaceAdd")   ? RowChange::kAdd
                : init.node().is_type("InplaceSub") ? RowChange::kSub
                                                    : RowChange::kUpdate) {
    const DType dtype = init.input_type(0);
    if (change_ != RowChange::kUpdate && !DispatchType(NumberTypes(), dtype, [](auto) {})) {
      FailDType(init, dtype);
    }
  }
  Status Compute(KernelContext& ctx) override {
    const Shape shape = ctx.input(0).shape();
    const void* before = ctx.input(0).raw_data();
    const Tensor& v = ctx.input(2);
    MR_ASSIGN_OR_RETURN(const IntList rows, ReadIntVector(ctx.input(1), "i"));
    if (shape.rank() < 1) return InvalidArgument("x must be at least a vector");
    Shape wanted = shape;
    wanted.set_dim(0, static_cast<int64_t>(rows.size()));
    if (v.shape() != wanted) {
      const bool rows_differ = v.rank() == shape.rank() && v.dim(0) != wanted.dim(0);
      return InvalidArgument(
          rows_differ ? "i and x shape doesn't match: " : "x and v shape doesn't match: ", "v must have shape ",
          wanted.ToString(), " for ", rows.size(), " rows of x ", shape.ToString(), ", got ", v.shape().ToString());
    }
    if (!rows.empty() && shape.dim(0) == 0) return InvalidArgument("x has no rows to change");
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.ForwardOrAllocateOutput({0}, 0, shape));
    if (out->raw_data() != before) {
      CopyElements(out->dtype(), before, 0, out->raw_data(), 0, shape.num_elements());
    }
    const int64_t n = shape.Product(1, shape.rank());
    for (size_t i = 0; i < rows.size(); ++i) {
      // Row indices are taken modulo the number of rows, as in TensorFlow.
      const int64_t row = (rows[i] % shape.dim(0) + shape.dim(0)) % shape.dim(0);
      const int64_t from = static_cast<int64_t>(i) * n;
      if (change_ == RowChange::kUpdate) {
        CopyElements(out->dtype(), v.raw_data(), from, out->raw_data(), row * n, n);
        continue;
      }
      DispatchType(NumberTypes(), out->dtype(), [&](auto tag) {
        using T = typename decltype(tag)::type;
        ChangeRow(change_, v.data<T>() + from, out->data<T>() + row * n, n);
      });
    }
    return absl::OkStatus();
  }

 private:
  const RowChange change_;
};

class DeepCopyKernel : public Kernel {
 public:
  explicit DeepCopyKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    const Tensor& x = ctx.input(0);
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, x.shape()));
    CopyElements(x.dtype(), x.raw_data(), 0, out->raw_data(), 0, x.num_elements());
    return absl::OkStatus();
  }
};

class EmptyKernel : public Kernel {
 public:
  explicit EmptyKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const IntList dims, ReadIntVector(ctx.input(0), "shape"));
    MR_ASSIGN_OR_RETURN(const Shape shape, Shape::Make(dims));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, shape));
    // Also without `init`, so that data of earlier steps does not leak.
    if (IsPlain(out->dtype())) std::memset(out->raw_data(), 0, out->TotalBytes());
    return absl::OkStatus();
  }
};

Status EmptyShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(PartialShape shape, c.ShapeFromInput(0));
  c.set_output(0, shape);
  return absl::OkStatus();
}

MILLRACE_OP(InplaceUpdate)
    .Input("x: T")
    .Input("i: int32")
    .Input("v: T")
    .Output("y: T")
    .Attr("T: type")
    .Shape(UnchangedShape)
    .NotDifferentiable()
    .Summary("Replaces rows of a tensor.");
MILLRACE_KERNEL(InplaceUpdate, kCpu, InplaceKernel);

MILLRACE_OP(InplaceAdd)
    .Input("x: T")
    .Input("i: int32")
    .Input("v: T")
    .Output("y: T")
    .Attr("T: type")
    .Shape(UnchangedShape)
    .NotDifferentiable()
    .Summary("Adds values to rows of a tensor.");
MILLRACE_KERNEL(InplaceAdd, kCpu, InplaceKernel);

MILLRACE_OP(InplaceSub)
    .Input("x: T")
    .Input("i: int32")
    .Input("v: T")
    .Output("y: T")
    .Attr("T: type")
    .Shape(UnchangedShape)
    .NotDifferentiable()
    .Summary("Subtracts values from rows of a tensor.");
MILLRACE_KERNEL(InplaceSub, kCpu, InplaceKernel);

MILLRACE_OP(DeepCopy)
    .Input("x: T")
    .Output("y: T")
    .Attr("T: type")
    .Stateful()
    .Shape(UnchangedShape)
    .NotDifferentiable()
    .Summary("An unshared copy of a tensor.");
MILLRACE_KERNEL(DeepCopy, kCpu, DeepCopyKernel);

MILLRACE_OP(Empty)
    .Input("shape: int32")
    .Output("output: dtype")
    .Attr("dtype: type")
    .Attr("init: bool = false")
    .Stateful()
    .Shape(EmptyShape)
    .NotDifferentiable()
    .Summary("A tensor of zeros of the given shape.");
MILLRACE_KERNEL(Empty, kCpu, EmptyKernel);

}  // namespace
}  // namespace millrace
