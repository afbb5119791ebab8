// LowerBound and UpperBound: where values belong in sorted rows.
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/array/partial_dims.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

// The first place of the row whose element is not less (kUpper: is greater) than the value. As std::lower_bound and
// std::upper_bound probe, but without branches on what they find.
template <bool kUpper, typename T>
int64_t Bound(const T* row, int64_t n, T value) {
  int64_t first = 0;
  while (n > 0) {
    const int64_t half = n / 2;
    const bool is_before = kUpper ? !(value < row[first + half]) : row[first + half] < value;
    first = is_before ? first + half + 1 : first;
    n = is_before ? n - half - 1 : half;
  }
  return first;
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
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, values.shape()));
    DispatchType(IndexTypes{}, out->dtype(), [&](auto index_tag) {
      using Index = typename decltype(index_tag)::type;
      DispatchType(RealTypes(), sorted.dtype(), [&](auto tag) {
        using T = typename decltype(tag)::type;
        for (int64_t i = 0; i < rows; ++i) {
          const T* row = sorted.data<T>() + i * n;
          const T* value = values.data<T>() + i * m;
          Index* to = out->data<Index>() + i * m;
          if (upper_) {
            for (int64_t j = 0; j < m; ++j) to[j] = static_cast<Index>(Bound<true>(row, n, value[j]));
          } else {
            for (int64_t j = 0; j < m; ++j) to[j] = static_cast<Index>(Bound<false>(row, n, value[j]));
          }
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
    .Input("sorted_inputs: T").Input("values: T").Output("output: out_type").Attr("T: type")
    .Attr("out_type: {int32, int64} = int32").Shape(SearchSortedShape).NotDifferentiable();
MILLRACE_KERNEL(LowerBound, kCpu, SearchSortedKernel);

MILLRACE_OP(UpperBound)
    .Input("sorted_inputs: T").Input("values: T").Output("output: out_type").Attr("T: type")
    .Attr("out_type: {int32, int64} = int32").Shape(SearchSortedShape).NotDifferentiable();
MILLRACE_KERNEL(UpperBound, kCpu, SearchSortedKernel);

}  // namespace
}  // namespace millrace
