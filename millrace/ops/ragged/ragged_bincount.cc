// RaggedBincount: counts the values of each row.
#include <algorithm>
#include <cstring>

#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/ragged/splits.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace::ragged {
namespace {

using WeightTypes = Types<int32_t, int64_t, float, double>;

class RaggedBincountKernel : public Kernel {
 public:
  explicit RaggedBincountKernel(KernelInit& init) { init.Attr("binary_output", &binary_); }

  Status Compute(KernelContext& ctx) override {
    const Tensor &values = ctx.input(1), &size_input = ctx.input(2), &weights = ctx.input(3);
    MR_ASSIGN_OR_RETURN(const Splits splits, SplitsOf(ctx.input(0), values.num_elements()));
    if (size_input.rank() != 0) {
      return InvalidArgument("Shape must be rank 0 but is rank ", size_input.rank(), " for size");
    }
    const int64_t size = IntsOf(size_input)[0];
    if (size < 0) return InvalidArgument("size (", size, ") must be non-negative");
    const bool weighted = weights.num_elements() > 0;
    if (weighted && weights.num_elements() != values.num_elements()) {
      return InvalidArgument("weights must have the shape of values, ", values.shape().ToString(), ", but have ",
                             weights.shape().ToString());
    }
    const Splits bins = IntsOf(values);
    for (const int64_t bin : bins) {
      if (bin < 0) return InvalidArgument("Input must be non-negative");
    }
    const int64_t rows = static_cast<int64_t>(splits.size()) - 1;
    MR_ASSIGN_OR_RETURN(const Shape shape, Shape::Make({rows, size}));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, shape));
    std::memset(out->raw_data(), 0, out->TotalBytes());
    DispatchType(WeightTypes{}, out->dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      for (int64_t r = 0; r < rows; ++r) {
        T* const row = out->data<T>() + r * size;
        for (int64_t k = splits[r]; k < splits[r + 1]; ++k) {
          if (bins[k] >= size) continue;
          if (binary_) {
            row[bins[k]] = T(1);
          } else {
            row[bins[k]] += weighted ? weights.data<T>()[k] : T(1);
          }
        }
      }
    });
    return absl::OkStatus();
  }

 private:
  bool binary_ = false;
};

Status RaggedBincountShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape splits, c.WithRank(0, 1));
  std::vector<int64_t> size;
  const bool known = c.ConstantInts(2, &size) && size.size() == 1;
  if (known && size[0] < 0) return InvalidArgument("size (", size[0], ") must be non-negative");
  c.set_output(0, PartialShape({splits.dim(0) < 1 ? -1 : splits.dim(0) - 1, known ? size[0] : -1}));
  return absl::OkStatus();
}

MILLRACE_OP(RaggedBincount)
    .Summary("Counts the values of each row of a ragged tensor.")
    .Input("splits: int64")
    .Input("values: Tidx")
    .Input("size: Tidx")
    .Input("weights: T")
    .Output("output: T")
    .Attr("Tidx: {int32, int64}")
    .Attr("T: {int32, int64, float, double}")
    .Attr("binary_output: bool = false")
    .Shape(RaggedBincountShape)
    .NotDifferentiable();
MILLRACE_KERNEL(RaggedBincount, kCpu, RaggedBincountKernel);

}  // namespace
}  // namespace millrace::ragged
