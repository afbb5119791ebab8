// LowerBound and UpperBound: insertion points of values in sorted rows.
#include <algorithm>
#include <limits>

#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/array/partial_dims.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

// For each value, the first position in the row whose element is not less (kUpper: is greater). Branch-free binary
// search: all values of a block take the same step together, so that their memory accesses overlap.
template <bool kUpper, typename T, typename Index>
void Bounds(const T* __restrict row, int64_t n, const T* __restrict values, int64_t m, Index* __restrict out) {
  constexpr int64_t kBlock = 256;
  const auto is_before = [](T element, T value) { return kUpper ? !(value < element) : element < value; };
  std::fill_n(out, m, Index(0));
  if (n == 0) return;
  for (int64_t begin = 0; begin < m; begin += kBlock) {
    const int64_t end = std::min(m, begin + kBlock);
    for (int64_t left = n; left > 1; left -= left / 2) {
      const Index half = static_cast<Index>(left / 2);
      for (int64_t j = begin; j < end; ++j) out[j] += is_before(row[out[j] + half - 1], values[j]) ? half : Index(0);
    }
    for (int64_t j = begin; j < end; ++j) out[j] += is_before(row[out[j]], values[j]) ? 1 : 0;
  }
}

class SearchSortedKernel : public Kernel {
 public:
  explicit SearchSortedKernel(KernelInit& init) : upper_(init.node().is_type("UpperBound")) {
    if (!DispatchType(RealTypes(), init.input_type(0), [](auto) {})) {
      FailDType(init, init.input_type(0));
    }
  }
  Status Compute(KernelContext& ctx) override {
    const Tensor& sorted = ctx.input(0);
    const Tensor& values = ctx.input(1);
    if (sorted.rank() != 2 || values.rank() != 2 || sorted.dim(0) != values.dim(0)) {
      return InvalidArgument("sorted_inputs and values must be matrices of as many rows, got shapes ",
                             sorted.shape().ToString(), " and ", values.shape().ToString());
    }
    const int64_t rows = values.dim(0), n = sorted.dim(1), m = values.dim(1);
    if (ctx.output_type(0) == DType::kInt32 && n > std::numeric_limits<int32_t>::max()) {
      return InvalidArgument("rows of ", n, " elements are too long for places of type int32");
    }
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, values.shape()));
    DispatchType(IndexTypes{}, out->dtype(), [&](auto index_tag) {
      using Index = typename decltype(index_tag)::type;
      DispatchType(RealTypes(), sorted.dtype(), [&](auto tag) {
        using T = typename decltype(tag)::type;
        for (int64_t i = 0; i < rows; ++i) {
          const T* row = sorted.data<T>() + i * n;
          const T* value = values.data<T>() + i * m;
          Index* to = out->data<Index>() + i * m;
          upper_ ? Bounds<true>(row, n, value, m, to) : Bounds<false>(row, n, value, m, to);
        }
      });
    });
    return absl::OkStatus();
  }

 private:
  const bool upper_;
};

Status SearchSortedShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape sorted, c.WithRank(0, 2));
  MR_ASSIGN_OR_RETURN(PartialShape values, c.WithRank(1, 2));
  MR_ASSIGN_OR_RETURN(const int64_t rows, MergeDims(sorted.dim(0), values.dim(0)));
  values.set_dim(0, rows);
  c.set_output(0, values);
  return absl::OkStatus();
}

MILLRACE_OP(LowerBound)
    .Input("sorted_inputs: T")
    .Input("values: T")
    .Output("output: out_type")
    .Attr("T: type")
    .Attr("out_type: {int32, int64} = int32")
    .Shape(SearchSortedShape)
    .NotDifferentiable()
    .Summary("The first positions in sorted rows whose elements are not less than values.");
MILLRACE_KERNEL(LowerBound, kCpu, SearchSortedKernel);

MILLRACE_OP(UpperBound)
    .Input("sorted_inputs: T")
    .Input("values: T")
    .Output("output: out_type")
    .Attr("T: type")
    .Attr("out_type: {int32, int64} = int32")
    .Shape(SearchSortedShape)
    .NotDifferentiable()
    .Summary("The first positions in sorted rows whose elements are greater than values.");
MILLRACE_KERNEL(UpperBound, kCpu, SearchSortedKernel);

}  // namespace
}  // namespace millrace
