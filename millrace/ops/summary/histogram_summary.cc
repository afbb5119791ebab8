// HistogramSummary.
#include <cmath>

#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/summary/histogram.h"
#include "millrace/ops/summary/summary_output.h"
#include "millrace/ops/summary/summary_values.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {

Status AddHistogram(const std::string& tag, const Tensor& values, const std::string& whose, pb::Summary* summary) {
  Histogram histogram;
  Status status;
  const bool known = DispatchType(JoinTypes<RealTypes, Types<bool>>::type(), values.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    for (const T& element : values.flat<T>()) {
      const auto value = static_cast<double>(element);
      if (!std::isfinite(value)) {
        status = InvalidArgument(std::isnan(value) ? "Nan" : "Infinity", " in summary histogram for: ", whose);
        return;
      }
      histogram.Add(value);
    }
  });
  if (!known) return InvalidArgument("a histogram cannot be of ", values.dtype());
  MR_RETURN_IF_ERROR(status);
  pb::Summary::Value* value = summary->add_value();
  value->set_tag(tag);
  histogram.ToProto(value->mutable_histo());
  return absl::OkStatus();
}

namespace {

class HistogramSummaryKernel : public Kernel {
 public:
  explicit HistogramSummaryKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const std::string* tag, TagInput(ctx, 0));
    pb::Summary summary;
    MR_RETURN_IF_ERROR(AddHistogram(*tag, ctx.input(1), ctx.node().name(), &summary));
    return SetSummary(ctx, summary);
  }
};

MILLRACE_OP(HistogramSummary)
    .Input("tag: string")
    .Input("values: T")
    .Output("summary: string")
    .Attr("T: realnumbertype = DT_FLOAT")
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("A Summary with a histogram of the values.");
MILLRACE_KERNEL(HistogramSummary, kCpu, HistogramSummaryKernel);

}  // namespace
}  // namespace millrace
