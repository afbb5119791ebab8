// StringJoin: joins the strings of several tensors element-wise.
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/string/string_input.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

class StringJoinKernel : public Kernel {
 public:
  explicit StringJoinKernel(KernelInit& init) { init.Attr("separator", &separator_); }

  Status Compute(KernelContext& ctx) override {
    Shape shape;
    for (int k = 0; k < ctx.num_inputs(); ++k) {
      const Shape& other = ctx.input(k).shape();
      if (other.rank() == 0) continue;
      if (shape.rank() == 0) {
        shape = other;
      } else if (shape != other) {
        return InvalidArgument("Input shapes do not match: ", shape.ToString(), " vs. ", other.ToString());
      }
    }
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, shape));
    std::string* to = out->data<std::string>();
    ctx.ParallelFor(shape.num_elements(), kStringGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        for (int k = 0; k < ctx.num_inputs(); ++k) {
          const Tensor& from = ctx.input(k);
          if (k > 0) to[i] += separator_;
          to[i] += from.data<std::string>()[from.rank() == 0 ? 0 : i];
        }
      }
    });
    return absl::OkStatus();
  }

 private:
  std::string separator_;
};

Status StringJoinShape(ShapeContext& c) {
  PartialShape out = PartialShape::Scalar();
  for (int k = 0; k < c.num_inputs(); ++k) {
    if (!c.input(k).known_rank()) {
      c.set_output(0, PartialShape());
      return absl::OkStatus();
    }
    if (c.input(k).rank() == 0) continue;
    if (out.rank() == 0) {
      out = c.input(k);
    } else {
      MR_ASSIGN_OR_RETURN(out, out.MergeWith(c.input(k)));
    }
  }
  c.set_output(0, out);
  return absl::OkStatus();
}

MILLRACE_OP(StringJoin)
    .Input("inputs: N * string")
    .Output("output: string")
    .Attr("N: int >= 0")
    .Attr("separator: string = ''")
    .Shape(StringJoinShape)
    .NotDifferentiable()
    .Summary("Joins strings element-wise with a separator.");
MILLRACE_KERNEL(StringJoin, kCpu, StringJoinKernel);

}  // namespace
}  // namespace millrace
