// DatasetCardinality.
#include "millrace/ops/dataset/dataset_value.h"

namespace millrace {
namespace {

class DatasetCardinalityKernel : public Kernel {
 public:
  explicit DatasetCardinalityKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const DatasetValue* const value, DatasetIn(ctx.input(0), "input_dataset"));
    const int64_t cardinality = value->dataset.Cardinality();
    MR_ASSIGN_OR_RETURN(Tensor* const out, ctx.AllocateOutput(0, Shape()));
    out->scalar<int64_t>() = cardinality;
    return absl::OkStatus();
  }
};

MILLRACE_OP(DatasetCardinality)
    .Input("input_dataset: variant")
    .Output("cardinality: int64")
    .Attr("cardinality_options: string = ''")
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("The number of elements of a dataset: -1 if it is infinite, -2 if it is not known.");
MILLRACE_KERNEL(DatasetCardinality, kCpu, DatasetCardinalityKernel);

}  // namespace
}  // namespace millrace
