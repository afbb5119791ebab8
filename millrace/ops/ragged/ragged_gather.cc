// RaggedGather: rows of a ragged tensor by their indices.
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/ragged/splits.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace::ragged {
namespace {

class RaggedGatherKernel : public Kernel {
 public:
  explicit RaggedGatherKernel(KernelInit& init) {
    init.Attr("PARAMS_RAGGED_RANK", &params_rank_);
    init.Attr("OUTPUT_RAGGED_RANK", &output_rank_);
  }

  Status Compute(KernelContext& ctx) override {
    const Tensor &values = ctx.input(params_rank_), &indices = ctx.input(params_rank_ + 1);
    MR_ASSIGN_OR_RETURN(const std::vector<Splits> params, NestedSplits(ctx, 0, params_rank_, values));
    if (indices.rank() < 1 || params_rank_ + indices.rank() - 1 != output_rank_) {
      return InvalidArgument("OUTPUT_RAGGED_RANK is ", output_rank_, ", but the params have ragged rank ", params_rank_,
                             " and the indices have shape ", indices.shape().ToString());
    }
    std::vector<Splits> out(static_cast<size_t>(output_rank_), Splits{0});
    int64_t rows = 1;
    for (int d = 0; d + 1 < indices.rank(); ++d) {
      rows *= indices.dim(d);
      for (int64_t r = 1; r <= rows; ++r) out[d].push_back(r * indices.dim(d + 1));
    }
    std::vector<std::pair<int64_t, int64_t>> slices;
    int64_t total = 0;
    const int64_t num_params = static_cast<int64_t>(params[0].size()) - 1;
    const Splits wanted = IntsOf(indices);
    for (size_t i = 0; i < wanted.size(); ++i) {
      int64_t begin = wanted[i], end = begin + 1;
      if (begin < 0 || begin >= num_params) {
        return InvalidArgument("indices[", i, "] = ", begin, " is not in [0, ", num_params, ")");
      }
      for (int l = 0; l < params_rank_; ++l) {
        const Splits& from = params[l];
        Splits& to = out[l + indices.rank() - 1];
        const int64_t shift = to.back() - from[begin];
        for (int64_t r = begin; r < end; ++r) to.push_back(from[r + 1] + shift);
        begin = from[begin];
        end = from[end];
      }
      if (begin < end) slices.emplace_back(begin, end);
      total += end - begin;
    }
    for (int l = 0; l < output_rank_; ++l) MR_RETURN_IF_ERROR(GiveInts(ctx, l, out[l]));
    MR_ASSIGN_OR_RETURN(const Shape shape, WithRows(values, total));
    MR_ASSIGN_OR_RETURN(Tensor * result, ctx.AllocateOutput(output_rank_, shape));
    int64_t at = 0;
    for (const auto& [begin, end] : slices) {
      CopyRows(values, begin, end, result, at);
      at += end - begin;
    }
    return absl::OkStatus();
  }

 private:
  int params_rank_ = 1, output_rank_ = 1;
};

Status RaggedGatherShape(ShapeContext& c) {
  for (int i = 0; i + 1 < c.num_outputs(); ++i) c.set_output(i, PartialShape({-1}));
  PartialShape values = c.input(c.num_inputs() - 2);
  if (values.known_rank() && values.rank() > 0) values.set_dim(0, -1);
  c.set_output(c.num_outputs() - 1, values);
  return absl::OkStatus();
}

MILLRACE_OP(RaggedGather)
    .Summary("Rows of a ragged tensor by their indices.")
    .Input("params_nested_splits: PARAMS_RAGGED_RANK * Tsplits")
    .Input("params_dense_values: Tvalues")
    .Input("indices: Tindices")
    .Output("output_nested_splits: OUTPUT_RAGGED_RANK * Tsplits")
    .Output("output_dense_values: Tvalues")
    .Attr("Tvalues: type")
    .Attr("Tindices: {int32, int64}")
    .Attr("Tsplits: {int32, int64} = DT_INT64")
    .Attr("PARAMS_RAGGED_RANK: int >= 1")
    .Attr("OUTPUT_RAGGED_RANK: int >= 0")
    .Shape(RaggedGatherShape);
MILLRACE_KERNEL(RaggedGather, kCpu, RaggedGatherKernel);

}  // namespace
}  // namespace millrace::ragged
