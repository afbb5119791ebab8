// EditDistance: the Levenshtein distance between hypotheses and truths, as sequences in sparse tensors.
#include <algorithm>
#include <limits>
#include <map>

#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/array/int_list.h"
#include "millrace/ops/kernels/strided_copy.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

// For each sequence, the positions of its elements in the values tensor.
using Sequences = std::map<int64_t, std::vector<int64_t>>;

Status CheckSparse(absl::string_view what, const Tensor& indices, const Tensor& values, const Tensor& shape) {
  if (indices.rank() != 2 || values.rank() != 1 || shape.rank() != 1) {
    return InvalidArgument(what, "_indices should be a matrix, ", what, "_values and ", what,
                           "_shape vectors, but got shapes ", indices.shape().ToString(), ", ",
                           values.shape().ToString(), " and ", shape.shape().ToString());
  }
  if (indices.dim(0) != values.dim(0) || indices.dim(1) != shape.dim(0)) {
    return InvalidArgument(what, "_indices of shape ", indices.shape().ToString(), " do not fit ", values.dim(0),
                           " values of rank ", shape.dim(0));
  }
  if (shape.dim(0) < 1) return InvalidArgument(what, "_shape must not be empty");
  return absl::OkStatus();
}

// Groups the values by all coordinates except the last.
StatusOr<Sequences> Group(absl::string_view what, const Tensor& indices, const Tensor& shape,
                          absl::Span<const int64_t> strides) {
  const int64_t rank = indices.dim(1);
  const int64_t* limits = shape.data<int64_t>();
  Sequences sequences;
  for (int64_t i = 0; i < indices.dim(0); ++i) {
    const int64_t* at = indices.data<int64_t>() + i * rank;
    int64_t group = 0;
    for (int64_t d = 0; d < rank; ++d) {
      if (at[d] < 0 || at[d] >= limits[d]) {
        return InvalidArgument(what, "_indices[", i, ",", d, "] = ", at[d], " is not in [0, ", limits[d], ")");
      }
      if (d + 1 < rank) group += at[d] * strides[d];
    }
    sequences[group].push_back(i);
  }
  return sequences;
}

template <typename T>
float Distance(const T* a, absl::Span<const int64_t> as, const T* b, absl::Span<const int64_t> bs) {
  std::vector<int64_t> row(bs.size() + 1);
  for (size_t j = 0; j <= bs.size(); ++j) row[j] = static_cast<int64_t>(j);
  for (size_t i = 1; i <= as.size(); ++i) {
    int64_t diagonal = row[0];
    row[0] = static_cast<int64_t>(i);
    for (size_t j = 1; j <= bs.size(); ++j) {
      const int64_t change = diagonal + (a[as[i - 1]] == b[bs[j - 1]] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({change, row[j] + 1, row[j - 1] + 1});
    }
  }
  return static_cast<float>(row.back());
}

using ValueTypes = JoinTypes<PlainTypes, Types<std::string>>::type;

class EditDistanceKernel : public Kernel {
 public:
  explicit EditDistanceKernel(KernelInit& init) {
    init.Attr("normalize", &normalize_);
    if (!DispatchType(ValueTypes(), init.input_type(1), [](auto) {})) {
      FailDType(init, init.input_type(1));
    }
  }
  Status Compute(KernelContext& ctx) override {
    MR_RETURN_IF_ERROR(CheckSparse("hypothesis", ctx.input(0), ctx.input(1), ctx.input(2)));
    MR_RETURN_IF_ERROR(CheckSparse("truth", ctx.input(3), ctx.input(4), ctx.input(5)));
    const int64_t rank = ctx.input(2).dim(0);
    if (ctx.input(5).dim(0) != rank) {
      return InvalidArgument("hypothesis and truth must have the same rank, got ", rank, " and ", ctx.input(5).dim(0));
    }
    Shape::Dims dims;
    for (int64_t d = 0; d + 1 < rank; ++d) {
      dims.push_back(std::max(ctx.input(2).data<int64_t>()[d], ctx.input(5).data<int64_t>()[d]));
    }
    MR_ASSIGN_OR_RETURN(const Shape shape, Shape::Make(dims));
    const auto strides = RowMajorStrides(shape.dims());
    MR_ASSIGN_OR_RETURN(Sequences hypotheses, Group("hypothesis", ctx.input(0), ctx.input(2), strides));
    MR_ASSIGN_OR_RETURN(Sequences truths, Group("truth", ctx.input(3), ctx.input(5), strides));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, shape));
    float* to = out->data<float>();
    std::fill_n(to, shape.num_elements(), 0.0f);
    for (const auto& [group, sequence] : hypotheses) {
      if (truths.count(group) > 0) continue;
      to[group] = normalize_ ? std::numeric_limits<float>::infinity() : static_cast<float>(sequence.size());
    }
    DispatchType(ValueTypes(), ctx.input(1).dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      for (const auto& [group, truth] : truths) {
        to[group] = Distance(ctx.input(1).data<T>(), hypotheses[group], ctx.input(4).data<T>(), truth);
        if (normalize_) to[group] /= static_cast<float>(truth.size());
      }
    });
    return absl::OkStatus();
  }

 private:
  bool normalize_ = true;
};

Status EditDistanceShape(ShapeContext& c) {
  const PartialShape& shape = c.input(2);
  if (shape.known_rank() && shape.rank() == 1 && shape.dim(0) > 0 && shape.dim(0) <= Shape::kMaxRank) {
    c.set_output(0, PartialShape::UnknownOfRank(static_cast<int>(shape.dim(0)) - 1));
  }
  return absl::OkStatus();
}

MILLRACE_OP(EditDistance)
    .Input("hypothesis_indices: int64")
    .Input("hypothesis_values: T")
    .Input("hypothesis_shape: int64")
    .Input("truth_indices: int64")
    .Input("truth_values: T")
    .Input("truth_shape: int64")
    .Output("output: float")
    .Attr("normalize: bool = true")
    .Attr("T: type")
    .Shape(EditDistanceShape)
    .NotDifferentiable()
    .Summary("The Levenshtein distance between sequences in sparse tensors.");
MILLRACE_KERNEL(EditDistance, kCpu, EditDistanceKernel);

}  // namespace
}  // namespace millrace
