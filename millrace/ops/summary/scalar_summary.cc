// ScalarSummary and MergeSummary.
#include "absl/container/flat_hash_set.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/summary/summary_output.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

class ScalarSummaryKernel : public Kernel {
 public:
  explicit ScalarSummaryKernel(KernelInit& init) {}
  Status Compute(KernelContext& ctx) override {
    const Tensor &tags = ctx.input(0), &values = ctx.input(1);
    if (tags.shape() != values.shape()) {
      return InvalidArgument("tags and values are not the same shape: ", tags.shape().ToString(),
                             " != ", values.shape().ToString(),
                             tags.num_elements() == 1 ? absl::StrCat(" (tag '", tags.scalar<std::string>(), "')") : "");
    }
    pb::Summary summary;
    DispatchType(RealTypes(), values.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      for (int64_t i = 0; i < values.num_elements(); ++i) {
        pb::Summary::Value* value = summary.add_value();
        value->set_tag(tags.data<std::string>()[i]);
        value->set_simple_value(static_cast<float>(values.data<T>()[i]));
      }
    });
    return SetSummary(ctx, summary);
  }
};

class MergeSummaryKernel : public Kernel {
 public:
  explicit MergeSummaryKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    pb::Summary merged;
    absl::flat_hash_set<std::string> tags;
    for (int k = 0; k < ctx.num_inputs(); ++k) {
      for (const std::string& bytes : ctx.input(k).flat<std::string>()) {
        pb::Summary summary;
        if (!summary.ParseFromString(bytes)) {
          return InvalidArgument("Could not parse one of the summary inputs: input ", k, " is not a Summary");
        }
        for (pb::Summary::Value& value : *summary.mutable_value()) {
          if (!value.tag().empty() && !tags.insert(value.tag()).second) {
            return InvalidArgument("Duplicate tag ", value.tag(), " found in summary inputs");
          }
          merged.add_value()->Swap(&value);
        }
      }
    }
    return SetSummary(ctx, merged);
  }
};

MILLRACE_OP(ScalarSummary)
    .Input("tags: string")
    .Input("values: T")
    .Output("summary: string")
    .Attr("T: realnumbertype")
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("A Summary with one number per tag.");
MILLRACE_OP(MergeSummary)
    .Input("inputs: N * string")
    .Output("summary: string")
    .Attr("N: int >= 1")
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("Merges several Summaries into one.");
MILLRACE_KERNEL(ScalarSummary, kCpu, ScalarSummaryKernel);
MILLRACE_KERNEL(MergeSummary, kCpu, MergeSummaryKernel);

}  // namespace
}  // namespace millrace
