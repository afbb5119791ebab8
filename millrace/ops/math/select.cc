// Select, SelectV2.
#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/kernels/broadcast.h"
#include "millrace/ops/kernels/elementwise.h"
#include "millrace/ops/math/elementwise_shapes.h"

namespace millrace {
namespace {

// Of a scalar operand only the first element is used.
template <typename T>
void SelectLoop(const bool* condition, bool c_moves, const T* a, bool a_moves, const T* b, bool b_moves, T* out,
                int64_t n) {
  if (c_moves && a_moves && b_moves) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) out[i] = condition[i] ? a[i] : b[i];
  } else if (!c_moves) {
    const T* from = *condition ? a : b;
    const bool moves = *condition ? a_moves : b_moves;
    if (!moves) {
      const T value = *from;
      std::fill_n(out, n, value);
    } else if (from != out) {
      std::copy_n(from, n, out);
    }
  } else {
    const int64_t a_step = a_moves, b_step = b_moves;
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) out[i] = condition[i] ? a[i * a_step] : b[i * b_step];
  }
}

class SelectV2Kernel : public Kernel {
 public:
  explicit SelectV2Kernel(KernelInit& init) {}

  Status Compute(KernelContext& ctx) override {
    const Tensor &condition = ctx.input(0), &a = ctx.input(1), &b = ctx.input(2);
    Broadcast walk;
    if (const Status status = walk.Init({&condition.shape(), &a.shape(), &b.shape()}); !status.ok()) {
      return InvalidArgument("condition, then and else must be broadcastable. ", status.message());
    }
    return Walk(ctx, walk);
  }

 protected:
  static Status Walk(KernelContext& ctx, const Broadcast& walk) {
    const bool* condition = ctx.input(0).data<bool>();
    const DType dtype = ctx.input(1).dtype();
    const void *pa = ctx.input(1).raw_data(), *pb = ctx.input(2).raw_data();
    MR_ASSIGN_OR_RETURN(Tensor * output, ctx.ForwardOrAllocateOutput({1, 2}, 0, walk.shape()));
    const bool known = DispatchMove(dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      const T *a = static_cast<const T*>(pa), *b = static_cast<const T*>(pb);
      T* out = static_cast<T*>(output->raw_data());
      ctx.ParallelFor(walk.num_elements(), kCheapGrain, [&](int64_t begin, int64_t end) {
        walk.ForEachRun(begin, end, [&](const int64_t* offsets, int64_t at, int64_t n) {
          SelectLoop(condition + offsets[0], walk.moves(0), a + offsets[1], walk.moves(1), b + offsets[2],
                     walk.moves(2), out + at, n);
        });
      });
    });
    return known ? absl::OkStatus() : Unimplemented("Select does not take elements of type ", DTypeName(dtype));
  }
};

// The condition may also be a scalar, or select whole rows of the first dimension.
class SelectKernel : public SelectV2Kernel {
 public:
  using SelectV2Kernel::SelectV2Kernel;

  Status Compute(KernelContext& ctx) override {
    const Tensor &condition = ctx.input(0), &a = ctx.input(1), &b = ctx.input(2);
    MR_ASSIGN_OR_RETURN(const Shape shape, ShapeOfCondition(condition.shape(), a.shape(), b.shape()));
    if (condition.rank() == 0) {
      ctx.SetOutput(0, condition.scalar<bool>() ? a : b);
      return absl::OkStatus();
    }
    Broadcast walk;
    MR_RETURN_IF_ERROR(walk.Init({&shape, &a.shape(), &b.shape()}));
    return Walk(ctx, walk);
  }
};

Status SelectShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(PartialShape shape, c.input(1).MergeWith(c.input(2)));
  const PartialShape& condition = c.input(0);
  if (condition.known_rank() && condition.rank() > 1) {
    MR_ASSIGN_OR_RETURN(shape, shape.MergeWith(condition));
  }
  c.set_output(0, std::move(shape));
  return absl::OkStatus();
}

Status SelectV2Shape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape values, BroadcastShapes(c.input(1), c.input(2)));
  MR_ASSIGN_OR_RETURN(PartialShape shape, BroadcastShapes(c.input(0), values));
  c.set_output(0, std::move(shape));
  return absl::OkStatus();
}

Status SelectGradient(GradientContext& c) {
  const Endpoint zeros = c.ZerosLike(c.input(1));
  c.set_input_grad(1, c.Op("Select", {c.input(0), c.grad(), zeros}));
  c.set_input_grad(2, c.Op("Select", {c.input(0), zeros, c.grad()}));
  return c.status();
}

Status SelectV2Gradient(GradientContext& c) {
  const Endpoint condition = c.input(0), g = c.grad(), zero = c.ScalarLike(0, g.dtype());
  // The condition takes part in broadcasting, so each branch is compared with the output, not with the other.
  const auto set = [&](int i, Endpoint grad) {
    const Endpoint shape = c.Shape(c.input(i));
    Node* axes = c.AddNode("BroadcastGradientArgs", {shape, c.Shape(c.output(0))});
    if (axes == nullptr) return;
    c.set_input_grad(i, c.Op("Reshape", {c.Op("Sum", {grad, axes->output(0)}), shape}));
  };
  set(1, c.Op("SelectV2", {condition, g, zero}));
  set(2, c.Op("SelectV2", {condition, zero, g}));
  return c.status();
}

}  // namespace

StatusOr<Shape> ShapeOfCondition(const Shape& condition, const Shape& a, const Shape& b) {
  if (a != b) {
    return InvalidArgument("'then' and 'else' must have the same size. but received: ", a.ToString(), " vs. ",
                           b.ToString());
  }
  Shape shape = condition;
  if (condition.rank() == 1 && a.rank() > 1 && a.dim(0) == condition.dim(0)) {
    for (int d = 1; d < a.rank(); ++d) shape.AddDim(1);
  } else if (condition.rank() != 0 && condition != a) {
    return InvalidArgument(
        "'condition' must be a scalar, a vector as long as dimension 0 of 'then', or of its "
        "shape: ",
        condition.ToString(), " vs. ", a.ToString());
  }
  return shape;
}

MILLRACE_OP(Select)
    .Input("condition: bool")
    .Input("t: T")
    .Input("e: T")
    .Output("output: T")
    .Attr("T: type")
    .Shape(SelectShape)
    .Gradient(SelectGradient)
    .Summary("t where the condition is true, e elsewhere; a vector condition selects whole rows");
MILLRACE_OP(SelectV2)
    .Input("condition: bool")
    .Input("t: T")
    .Input("e: T")
    .Output("output: T")
    .Attr("T: type")
    .Shape(SelectV2Shape)
    .Gradient(SelectV2Gradient)
    .Trait(OpTrait::kElementwise)
    .Summary("t where the condition is true, e elsewhere, broadcast");

MILLRACE_KERNEL(Select, kCpu, SelectKernel);
MILLRACE_HOST_KERNEL(Select, kCuda, "T", DType::kInt32);
MILLRACE_KERNEL(SelectV2, kCpu, SelectV2Kernel);

}  // namespace millrace
