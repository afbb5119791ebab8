// Reshape: the same elements, in the same memory, under another shape.
#include "millrace/graph/constant_ints.h"
#include "millrace/graph/gradient.h"
#include "millrace/graph/host_memory.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/array/int_list.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

// The product of the dimensions other than -1 and 0; an error for a negative one, a second -1 or an overflow. `unknown`
// is set to the position of the -1, `has_zero` if there is a 0.
StatusOr<int64_t> KnownProduct(absl::Span<const int64_t> dims, int* unknown, bool* has_zero) {
  int64_t product = 1;
  *unknown = -1;
  *has_zero = false;
  for (int i = 0; i < static_cast<int>(dims.size()); ++i) {
    if (dims[i] == -1) {
      if (*unknown >= 0) {
        return InvalidArgument("Only one input size may be -1, not both ", *unknown, " and ", i);
      }
      *unknown = i;
    } else if (dims[i] < 0) {
      return InvalidArgument("Size ", i, " must be non-negative, not ", dims[i]);
    } else if (dims[i] == 0) {
      *has_zero = true;
    } else if (__builtin_mul_overflow(product, dims[i], &product)) {
      return InvalidArgument("the requested shape [", absl::StrJoin(dims, ","), "] has too many elements");
    }
  }
  return product;
}

class ReshapeKernel : public Kernel {
 public:
  explicit ReshapeKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    const Tensor& input = ctx.input(0);
    // A scalar is accepted as a vector of one element, as in old TensorFlow front ends.
    if (ctx.input(1).rank() > 1) {
      return InvalidArgument("sizes input must be 1-D, not ", ctx.input(1).shape().ToString());
    }
    MR_ASSIGN_OR_RETURN(IntList dims, ReadInts(ctx.input(1), "shape"));
    if (dims.size() >= Shape::kMaxRank) {
      return InvalidArgument("too many dimensions: must be < ", Shape::kMaxRank, ", but received ", dims.size());
    }
    int unknown;
    bool has_zero;
    MR_ASSIGN_OR_RETURN(const int64_t known, KnownProduct(dims, &unknown, &has_zero));
    if (unknown >= 0) {
      // Between empty shapes the dimensions that are not zero decide: [2, 3, 0] becomes [-1, 0] as [6, 0].
      int64_t size = 1;
      for (const int64_t d : input.shape().dims()) size *= d == 0 && has_zero ? 1 : d;
      if (size % known != 0) {
        return InvalidArgument("Input to reshape is a tensor with ", size,
                               " values, but the requested shape requires a multiple of ", known);
      }
      dims[unknown] = size / known;
    }
    if (unknown < 0 || has_zero) {
      const int64_t wanted = has_zero ? 0 : known;
      if (wanted != input.num_elements()) {
        return InvalidArgument("Input to reshape is a tensor with ", input.num_elements(),
                               " values, but the requested shape has ", wanted);
      }
    }
    MR_ASSIGN_OR_RETURN(Shape shape, Shape::Make(dims));
    ctx.SetOutput(0, input.ViewAs(input.dtype(), std::move(shape)));
    return absl::OkStatus();
  }
};

Status ReshapeShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(PartialShape shape, c.ShapeFromInput(1));
  const int64_t size = c.input(0).num_elements();
  int unknown = 0;
  int64_t known = 1;
  int unknowns = 0;
  for (int i = 0; i < shape.rank(); ++i) {
    if (shape.dim(i) < 0) {
      unknown = i;
      ++unknowns;
    } else if (__builtin_mul_overflow(known, shape.dim(i), &known)) {
      return InvalidArgument("the requested shape ", shape.ToString(), " has too many elements");
    }
  }
  if (shape.known_rank() && size >= 0) {
    if (unknowns == 0 && known != size) {
      return InvalidArgument("Cannot reshape a tensor with ", size, " elements to shape ", shape.ToString(), " (",
                             known, " elements)");
    }
    if (unknowns == 1 && known > 0) {
      if (size % known != 0) {
        return InvalidArgument("Cannot reshape a tensor with ", size, " elements to shape ", shape.ToString(),
                               ": it requires a multiple of ", known);
      }
      shape.set_dim(unknown, size / known);
    }
  }
  c.set_output(0, shape);
  return absl::OkStatus();
}

Status ReshapeGradient(GradientContext& c) {
  c.set_input_grad(0, c.Reshape(c.grad(), c.Shape(c.input(0))));
  return absl::OkStatus();
}

MILLRACE_OP(Reshape)
    .Input("tensor: T")
    .Input("shape: Tshape")
    .Output("output: T")
    .Attr("T: type")
    .Attr("Tshape: {int32, int64} = int32")
    .Shape(ReshapeShape)
    .Gradient(ReshapeGradient)
    .Ints(UnchangedInts)
    .Summary("Changes the shape of a tensor.");
MILLRACE_KERNEL(Reshape, kCpu, ReshapeKernel);
MILLRACE_HOST_KERNEL(Reshape, kCuda, "T", DType::kInt32);
MILLRACE_KERNEL(Reshape, kCuda, ReshapeKernel);
MILLRACE_HOST_MEMORY(Reshape, "GPU", "shape");

}  // namespace
}  // namespace millrace
