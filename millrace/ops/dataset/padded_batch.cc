// PaddedBatchDataset: batches of elements of different shapes.
#include "millrace/ops/dataset/dataset_value.h"

namespace millrace {
namespace {

class PaddedBatchDatasetKernel : public DatasetKernel {
 public:
  explicit PaddedBatchDatasetKernel(KernelInit& init) {
    init.Attr("N", &n_);
    std::vector<DType> types;
    init.Attr("Toutput_types", &types);
    if (init.status().ok() && static_cast<int64_t>(types.size()) != n_) {
      init.Fail(InvalidArgument("there are ", n_, " padded_shapes and ", types.size(), " padding_values"));
    }
  }

  StatusOr<Dataset> Make(KernelContext& ctx, PipelineParts*) override {
    MR_ASSIGN_OR_RETURN(const Dataset input, Input(ctx, 0));
    PaddedBatchOptions options;
    MR_ASSIGN_OR_RETURN(options.size, Count(ctx, 1, "batch_size", 1));
    const int n = static_cast<int>(n_);
    for (int i = 0; i < n; ++i) {
      const Tensor& dims = ctx.input(2 + i);
      if (dims.rank() != 1) return InvalidArgument("All padded shapes must be vectors");
      for (int64_t d : dims.flat<int64_t>()) {
        if (d < -1) return InvalidArgument("padded shape ", i, " has the dimension ", d);
      }
      options.padded_shapes.emplace_back(dims.flat<int64_t>());
      const Tensor& value = ctx.input(2 + n + i);
      if (value.rank() != 0) return InvalidArgument("All padding values must be scalars");
      options.padding_values.push_back(value);
    }
    if (ctx.num_inputs() > 2 + 2 * n) {
      MR_ASSIGN_OR_RETURN(options.drop_remainder, Scalar<bool>(ctx, 2 + 2 * n, "drop_remainder"));
    }
    return input.PaddedBatch(std::move(options));
  }

 private:
  int64_t n_ = 0;
};

MILLRACE_OP(PaddedBatchDataset)
    .Input("input_dataset: variant")
    .Input("batch_size: int64")
    .Input("padded_shapes: N * int64")
    .Input("padding_values: Toutput_types")
    .Output("handle: variant")
    .Attr("Toutput_types: list(type) >= 1")
    .Attr("output_shapes: list(shape) >= 1")
    .Attr("N: int >= 1")
    .Attr("metadata: string = ''")
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("Stacks consecutive elements, padded to a common shape.");

MILLRACE_OP(PaddedBatchDatasetV2)
    .Input("input_dataset: variant")
    .Input("batch_size: int64")
    .Input("padded_shapes: N * int64")
    .Input("padding_values: Toutput_types")
    .Input("drop_remainder: bool")
    .Output("handle: variant")
    .Attr("parallel_copy: bool = false")
    .Attr("Toutput_types: list(type) >= 1")
    .Attr("output_shapes: list(shape) >= 1")
    .Attr("N: int >= 1")
    .Attr("metadata: string = ''")
    .Shape(ScalarShape)
    .NotDifferentiable()
    .Summary("Stacks consecutive elements, padded to a common shape.");

MILLRACE_KERNEL(PaddedBatchDataset, kCpu, PaddedBatchDatasetKernel);
MILLRACE_KERNEL(PaddedBatchDatasetV2, kCpu, PaddedBatchDatasetKernel);

}  // namespace
}  // namespace millrace
