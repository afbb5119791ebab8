// Equal, NotEqual, Less, LessEqual, Greater, GreaterEqual.
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/kernels/elementwise.h"
#include "millrace/ops/kernels/functors.h"

namespace millrace {
namespace {

struct GreaterFn {
  using Mirrored = LessFn;
};
struct GreaterEqualFn {
  using Mirrored = LessEqualFn;
};

// Without incompatible_shape_error, operands of incompatible shapes are not equal.
template <typename F, bool kDifferent>
class EqualityKernel : public BinaryOf<F, JoinTypes<PlainTypes, Types<std::string>>::type, bool> {
 public:
  explicit EqualityKernel(KernelInit& init) : BinaryOf<F, JoinTypes<PlainTypes, Types<std::string>>::type, bool>(init) {
    init.Attr("incompatible_shape_error", &incompatible_shape_error_);
  }
  Status Compute(KernelContext& ctx) override {
    if (!incompatible_shape_error_) {
      const StatusOr<PartialShape> shape = BroadcastShapes(ctx.input(0).shape(), ctx.input(1).shape());
      if (!shape.ok()) {
        ctx.SetOutput(0, Tensor::Scalar<bool>(kDifferent));
        return absl::OkStatus();
      }
    }
    return BinaryKernel::Compute(ctx);
  }

 private:
  bool incompatible_shape_error_ = true;
};

Status EqualityShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(const bool strict, c.Attr<bool>("incompatible_shape_error"));
  const StatusOr<PartialShape> shape = BroadcastShapes(c.input(0), c.input(1));
  if (strict) MR_RETURN_IF_ERROR(shape.status());
  c.set_output(0, shape.ok() ? *shape : PartialShape::Scalar());
  return absl::OkStatus();
}

}  // namespace

MILLRACE_OP(Equal)
    .Input("x: T")
    .Input("y: T")
    .Output("z: bool")
    .Attr("T: type")
    .Attr("incompatible_shape_error: bool = true")
    .Commutative()
    .Shape(EqualityShape)
    .NotDifferentiable()
    .Trait(OpTrait::kElementwise)
    .Summary("Where x == y, broadcast");
MILLRACE_OP(NotEqual)
    .Input("x: T")
    .Input("y: T")
    .Output("z: bool")
    .Attr("T: type")
    .Attr("incompatible_shape_error: bool = true")
    .Commutative()
    .Shape(EqualityShape)
    .NotDifferentiable()
    .Trait(OpTrait::kElementwise)
    .Summary("Where x != y, broadcast");
MILLRACE_OP(Less)
    .Input("x: T")
    .Input("y: T")
    .Output("z: bool")
    .Attr("T: realnumbertype")
    .Shape(BroadcastShape)
    .NotDifferentiable()
    .Trait(OpTrait::kElementwise)
    .Summary("Where x < y, broadcast");
MILLRACE_OP(LessEqual)
    .Input("x: T")
    .Input("y: T")
    .Output("z: bool")
    .Attr("T: realnumbertype")
    .Shape(BroadcastShape)
    .NotDifferentiable()
    .Trait(OpTrait::kElementwise)
    .Summary("Where x <= y, broadcast");
MILLRACE_OP(Greater)
    .Input("x: T")
    .Input("y: T")
    .Output("z: bool")
    .Attr("T: realnumbertype")
    .Shape(BroadcastShape)
    .NotDifferentiable()
    .Trait(OpTrait::kElementwise)
    .Summary("Where x > y, broadcast");
MILLRACE_OP(GreaterEqual)
    .Input("x: T")
    .Input("y: T")
    .Output("z: bool")
    .Attr("T: realnumbertype")
    .Shape(BroadcastShape)
    .NotDifferentiable()
    .Trait(OpTrait::kElementwise)
    .Summary("Where x >= y, broadcast");

MILLRACE_KERNEL(Equal, kCpu, EqualityKernel<EqualFn, false>);
MILLRACE_HOST_KERNEL(Equal, kCuda, "T", DType::kInt32);
MILLRACE_KERNEL(NotEqual, kCpu, EqualityKernel<NotEqualFn, true>);
MILLRACE_HOST_KERNEL(NotEqual, kCuda, "T", DType::kInt32);
MILLRACE_KERNEL(Less, kCpu, BinaryOf<LessFn, RealTypes, bool>);
MILLRACE_HOST_KERNEL(Less, kCuda, "T", DType::kInt32);
MILLRACE_KERNEL(LessEqual, kCpu, BinaryOf<LessEqualFn, RealTypes, bool>);
MILLRACE_HOST_KERNEL(LessEqual, kCuda, "T", DType::kInt32);
MILLRACE_KERNEL(Greater, kCpu, BinaryOf<GreaterFn, RealTypes, bool>);
MILLRACE_HOST_KERNEL(Greater, kCuda, "T", DType::kInt32);
MILLRACE_KERNEL(GreaterEqual, kCpu, BinaryOf<GreaterEqualFn, RealTypes, bool>);
MILLRACE_HOST_KERNEL(GreaterEqual, kCuda, "T", DType::kInt32);

}  // namespace millrace
