// AudioSummary, AudioSummaryV2.
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/summary/summary_output.h"
#include "millrace/ops/summary/summary_values.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

class AudioSummaryKernel : public Kernel {
 public:
  explicit AudioSummaryKernel(KernelInit& init) {
    init.Attr("max_outputs", &max_outputs_);
    // The older op has the rate as an attr.
    if (init.node().num_inputs() == 2) init.Attr("sample_rate", &sample_rate_);
  }
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const std::string* tag, TagInput(ctx, 0));
    float rate = sample_rate_;
    if (ctx.num_inputs() == 3) {
      if (ctx.input(2).num_elements() != 1) {
        return InvalidArgument("sample_rate must be a scalar, got shape ", ctx.input(2).shape().ToString());
      }
      rate = ctx.input(2).scalar<float>();
    }
    pb::Summary summary;
    MR_RETURN_IF_ERROR(AddSounds(*tag, ctx.input(1), rate, max_outputs_, &summary));
    return SetSummary(ctx, summary);
  }
  bool is_expensive() const override { return true; }

 private:
  int64_t max_outputs_ = 3;
  float sample_rate_ = 0;
};

MILLRACE_OP(AudioSummaryV2)
    .Input("tag: string")
    .Input("tensor: float")
    .Input("sample_rate: float")
    .Output("summary: string")
    .Attr("max_outputs: int >= 1 = 3")
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("A Summary with sounds, as WAV.");
MILLRACE_KERNEL(AudioSummaryV2, kCpu, AudioSummaryKernel);

MILLRACE_OP(AudioSummary)
    .Input("tag: string")
    .Input("tensor: float")
    .Output("summary: string")
    .Attr("sample_rate: float")
    .Attr("max_outputs: int >= 1 = 3")
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("A Summary with sounds, as WAV.");
MILLRACE_KERNEL(AudioSummary, kCpu, AudioSummaryKernel);

}  // namespace
}  // namespace millrace
