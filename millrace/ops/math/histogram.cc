// HistogramFixedWidth.
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/kernels/elementwise.h"
#include "millrace/ops/kernels/index_input.h"

namespace millrace {
namespace {

using ValueTypes = Types<int32_t, int64_t, float, double>;

class HistogramKernel : public Kernel {
 public:
  explicit HistogramKernel(KernelInit& init) {
    if (!DispatchType(ValueTypes{}, init.input_type(0), [](auto) {})) FailDType(init, init.input_type(0));
  }

  Status Compute(KernelContext& ctx) override {
    const Tensor &values = ctx.input(0), &range = ctx.input(1);
    if (range.rank() != 1 || range.num_elements() != 2) {
      return InvalidArgument("value_range should be a vector of 2 elements, but has shape ", range.shape().ToString());
    }
    MR_ASSIGN_OR_RETURN(const int64_t bins, ScalarInput(ctx, 2, "nbins"));
    if (bins <= 0) return InvalidArgument("nbins should be a positive number, but got '", bins, "'");
    MR_ASSIGN_OR_RETURN(Tensor * output, ctx.AllocateOutput(0, Shape({bins})));
    Status status;
    DispatchType(ValueTypes{}, values.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      if (output->dtype() == DType::kInt32) {
        status = Count<T, int32_t>(values, range, bins, output->data<int32_t>());
      } else {
        status = Count<T, int64_t>(values, range, bins, output->data<int64_t>());
      }
    });
    return status;
  }

 private:
  // Values outside the range are counted in the first or last bin.
  template <typename T, typename Out>
  static Status Count(const Tensor& values, const Tensor& range, int64_t bins, Out* out) {
    const double low = static_cast<double>(range.data<T>()[0]), high = static_cast<double>(range.data<T>()[1]);
    if (!(low < high) || !std::isfinite(low) || !std::isfinite(high)) {
      return InvalidArgument("value_range should satisfy value_range[0] < value_range[1], but got '[", low, ", ", high,
                             "]'");
    }
    const double step = (high - low) / static_cast<double>(bins);
    std::fill_n(out, bins, Out(0));
    for (const T x : values.flat<T>()) {
      const double value = static_cast<double>(x);
      if (value != value) return InvalidArgument("values must not contain NaN");
      const double at = std::floor((value - low) / step);
      ++out[at < 0 ? 0 : at >= static_cast<double>(bins) ? bins - 1 : static_cast<int64_t>(at)];
    }
    return absl::OkStatus();
  }
};

Status HistogramShape(ShapeContext& c) {
  MR_RETURN_IF_ERROR(c.WithRank(1, 1).status());
  MR_RETURN_IF_ERROR(c.WithRank(2, 0).status());
  const Tensor* bins = c.constant(2);
  if (bins != nullptr && IntAt(*bins, 0) <= 0) {
    return InvalidArgument("nbins should be a positive number, but got '", IntAt(*bins, 0), "'");
  }
  c.set_output(0, PartialShape({bins == nullptr ? PartialShape::kUnknown : IntAt(*bins, 0)}));
  return absl::OkStatus();
}

}  // namespace

MILLRACE_OP(HistogramFixedWidth)
    .Input("values: T")
    .Input("value_range: T")
    .Input("nbins: int32")
    .Output("out: dtype")
    .Attr("T: {int32, int64, float, double}")
    .Attr("dtype: {int32, int64} = int32")
    .Shape(HistogramShape)
    .NotDifferentiable()
    .Summary("A histogram of values in nbins equal parts of a range");

MILLRACE_KERNEL(HistogramFixedWidth, kCpu, HistogramKernel);

}  // namespace millrace
