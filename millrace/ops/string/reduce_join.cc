// ReduceJoin: joins the strings along some dimensions.
#include <algorithm>

#include "absl/strings/str_join.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/kernels/strided_copy.h"
#include "millrace/ops/string/string_input.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

// The element offsets of all positions over `dims`, the last of which varies fastest.
std::vector<int64_t> Offsets(const Shape& shape, absl::Span<const int64_t> strides, const std::vector<int>& dims) {
  std::vector<int64_t> offsets = {0};
  for (const int d : dims) {
    std::vector<int64_t> next;
    next.reserve(offsets.size() * static_cast<size_t>(shape.dim(d)));
    for (const int64_t base : offsets) {
      for (int64_t i = 0; i < shape.dim(d); ++i) next.push_back(base + i * strides[d]);
    }
    offsets = std::move(next);
  }
  return offsets;
}

class ReduceJoinKernel : public Kernel {
 public:
  explicit ReduceJoinKernel(KernelInit& init) {
    init.Attr("keep_dims", &keep_dims_);
    init.Attr("separator", &separator_);
  }

  Status Compute(KernelContext& ctx) override {
    const Tensor& input = ctx.input(0);
    const Tensor& axes = ctx.input(1);
    const int rank = input.rank();
    std::vector<int> reduced, kept;
    std::vector<bool> is_reduced(static_cast<size_t>(rank));
    for (const int32_t axis : axes.flat<int32_t>()) {
      if (axis < -rank || axis >= rank) {
        return OutOfRange("Invalid reduction dimension ", axis, " for input with ", rank, " dimension(s)");
      }
      const int d = axis < 0 ? axis + rank : axis;
      if (is_reduced[d]) return InvalidArgument("Duplicate reduction dimension ", d);
      is_reduced[d] = true;
      reduced.push_back(d);
    }
    // The dimension that is listed first is joined first, so it varies fastest.
    std::reverse(reduced.begin(), reduced.end());
    Shape shape;
    for (int d = 0; d < rank; ++d) {
      if (!is_reduced[d]) {
        kept.push_back(d);
        shape.AddDim(input.dim(d));
      } else if (keep_dims_) {
        shape.AddDim(1);
      }
    }
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, shape));
    if (shape.num_elements() == 0) return absl::OkStatus();
    const auto strides = RowMajorStrides(input.shape().dims());
    const std::vector<int64_t> bases = Offsets(input.shape(), strides, kept);
    const std::vector<int64_t> parts = Offsets(input.shape(), strides, reduced);
    const std::string* from = input.data<std::string>();
    std::string* to = out->data<std::string>();
    const int64_t grain = std::max<int64_t>(1, kStringGrain / static_cast<int64_t>(parts.size() + 1));
    ctx.ParallelFor(static_cast<int64_t>(bases.size()), grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        to[i] = absl::StrJoin(parts, separator_,
                              [&](std::string* text, int64_t part) { text->append(from[bases[i] + part]); });
      }
    });
    return absl::OkStatus();
  }

 private:
  bool keep_dims_ = false;
  std::string separator_;
};

Status ReduceJoinShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(const bool keep_dims, c.Attr<bool>("keep_dims"));
  const PartialShape& in = c.input(0);
  const Tensor* axes = c.constant(1);
  if (!in.known_rank()) return absl::OkStatus();
  if (axes == nullptr) {
    if (keep_dims) c.set_output(0, PartialShape::UnknownOfRank(in.rank()));
    return absl::OkStatus();
  }
  std::vector<bool> is_reduced(static_cast<size_t>(in.rank()));
  for (const int32_t axis : axes->flat<int32_t>()) {
    MR_ASSIGN_OR_RETURN(const int d, CanonicalAxis(axis, in.rank()));
    is_reduced[d] = true;
  }
  PartialShape out = PartialShape::Scalar();
  for (int d = 0; d < in.rank(); ++d) {
    if (!is_reduced[d]) {
      out.AddDim(in.dim(d));
    } else if (keep_dims) {
      out.AddDim(1);
    }
  }
  c.set_output(0, out);
  return absl::OkStatus();
}

MILLRACE_OP(ReduceJoin)
    .Input("inputs: string")
    .Input("reduction_indices: int32")
    .Output("output: string")
    .Attr("keep_dims: bool = false")
    .Attr("separator: string = ''")
    .Shape(ReduceJoinShape)
    .NotDifferentiable()
    .Summary("Joins the strings along the given dimensions, in the order given.");
MILLRACE_KERNEL(ReduceJoin, kCpu, ReduceJoinKernel);

}  // namespace
}  // namespace millrace
