// UnsortedSegmentJoin: joins the strings of each segment.
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/kernels/index_input.h"
#include "millrace/ops/string/string_input.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

class UnsortedSegmentJoinKernel : public Kernel {
 public:
  explicit UnsortedSegmentJoinKernel(KernelInit& init) { init.Attr("separator", &separator_); }

  Status Compute(KernelContext& ctx) override {
    const Tensor &input = ctx.input(0), &ids = ctx.input(1), &num_segments = ctx.input(2);
    if (num_segments.rank() != 0) {
      return InvalidArgument("Number of segments must be a scalar, but has shape ", num_segments.shape().ToString());
    }
    const int64_t segments = IntAt(num_segments, 0);
    if (segments < 0) return InvalidArgument("Number of segments must be non-negative but got ", segments);
    if (ids.rank() == 0) return InvalidArgument("Segment_id cannot have rank 0");
    if (ids.rank() > input.rank()) {
      return OutOfRange("Segment_id has more dimensions (", ids.rank(), ") than the input (", input.rank(), ")");
    }
    Shape::Dims dims = {segments};
    for (int d = 0; d < input.rank(); ++d) {
      if (d >= ids.rank()) {
        dims.push_back(input.dim(d));
      } else if (ids.dim(d) != input.dim(d)) {
        return InvalidArgument("Segment dimension is ", ids.dim(d), " while input dimension is ", input.dim(d),
                               " in rank ", d);
      }
    }
    const int64_t row = input.shape().Product(ids.rank(), input.rank()), rows = ids.num_elements();
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t id = IntAt(ids, i);
      if (id < 0 || id >= segments) {
        return InvalidArgument(
            "segment_ids are not allowed to exceed num_segments or to have negative values: segment_ids[", i,
            "] = ", id, " is not in [0, ", segments, ")");
      }
    }
    MR_ASSIGN_OR_RETURN(const Shape shape, Shape::Make(dims));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, shape));
    const std::string* from = input.data<std::string>();
    std::string* to = out->data<std::string>();
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t id = IntAt(ids, i);
      for (int64_t j = 0; j < row; ++j) {
        std::string& text = to[id * row + j];
        if (!text.empty()) text += separator_;  // leading empty strings get no separator
        text += from[i * row + j];
      }
    }
    return absl::OkStatus();
  }

 private:
  std::string separator_;
};

Status UnsortedSegmentJoinShape(ShapeContext& c) {
  const PartialShape &input = c.input(0), &ids = c.input(1);
  if (!input.known_rank() || !ids.known_rank()) return absl::OkStatus();
  if (ids.rank() > input.rank()) return InvalidArgument("segment_ids have more dimensions than the input");
  std::vector<int64_t> segments;
  PartialShape out({c.ConstantInts(2, &segments) && segments.size() == 1 && segments[0] >= 0 ? segments[0]
                                                                                             : PartialShape::kUnknown});
  for (int d = ids.rank(); d < input.rank(); ++d) out.AddDim(input.dim(d));
  c.set_output(0, out);
  return absl::OkStatus();
}

MILLRACE_OP(UnsortedSegmentJoin)
    .Input("inputs: string")
    .Input("segment_ids: Tindices")
    .Input("num_segments: Tnumsegments")
    .Output("output: string")
    .Attr("separator: string = ''")
    .Attr("Tindices: {int32, int64}")
    .Attr("Tnumsegments: {int32, int64} = DT_INT32")
    .Shape(UnsortedSegmentJoinShape)
    .NotDifferentiable()
    .Summary("Joins the strings of each segment in order.");
MILLRACE_KERNEL(UnsortedSegmentJoin, kCpu, UnsortedSegmentJoinKernel);

}  // namespace
}  // namespace millrace
