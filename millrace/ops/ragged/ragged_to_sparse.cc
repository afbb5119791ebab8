// RaggedTensorToSparse: the values of a ragged tensor with their places.
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/ragged/splits.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace::ragged {
namespace {

class RaggedToSparseKernel : public Kernel {
 public:
  explicit RaggedToSparseKernel(KernelInit& init) { init.Attr("RAGGED_RANK", &ragged_rank_); }

  Status Compute(KernelContext& ctx) override {
    const Tensor& values = ctx.input(ragged_rank_);
    MR_ASSIGN_OR_RETURN(const std::vector<Splits> nested, NestedSplits(ctx, 0, ragged_rank_, values));
    const int rank = ragged_rank_ + values.rank();
    MR_ASSIGN_OR_RETURN(Tensor * indices, ctx.AllocateOutput(0, Shape({values.num_elements(), rank})));
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(1, Shape({values.num_elements()})));
    MR_ASSIGN_OR_RETURN(Tensor * dense, ctx.AllocateOutput(2, Shape({rank})));
    DispatchMove(values.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      std::copy_n(values.raw<T>(), values.num_elements(), out->raw<T>());
    });
    int64_t* shape = dense->data<int64_t>();
    shape[0] = static_cast<int64_t>(nested[0].size()) - 1;
    for (int l = 0; l < ragged_rank_; ++l) {
      int64_t longest = 0;
      for (size_t r = 0; r + 1 < nested[l].size(); ++r) longest = std::max(longest, nested[l][r + 1] - nested[l][r]);
      shape[l + 1] = longest;
    }
    for (int d = 1; d < values.rank(); ++d) shape[ragged_rank_ + d] = values.dim(d);
    Places(nested, values, indices->data<int64_t>());
    return absl::OkStatus();
  }

 private:
  void Places(const std::vector<Splits>& nested, const Tensor& values, int64_t* to) const {
    const int64_t rows = values.dim(0), each = rows == 0 ? 0 : values.num_elements() / rows;
    std::vector<int64_t> row(static_cast<size_t>(ragged_rank_), 0);  // at each level, the row that is being walked
    for (int64_t v = 0; v < rows; ++v) {
      int64_t child = v;
      std::vector<int64_t> prefix(static_cast<size_t>(ragged_rank_) + 1);
      for (int l = ragged_rank_ - 1; l >= 0; --l) {
        while (nested[l][row[l] + 1] <= child) ++row[l];
        prefix[l + 1] = child - nested[l][row[l]];
        child = row[l];
      }
      prefix[0] = child;
      for (int64_t k = 0; k < each; ++k) {
        for (const int64_t p : prefix) *to++ = p;
        int64_t left = k, stride = each;
        for (int d = 1; d < values.rank(); ++d) {
          stride /= values.dim(d);
          *to++ = left / stride;
          left %= stride;
        }
      }
    }
  }

  int ragged_rank_ = 1;
};

Status RaggedToSparseShape(ShapeContext& c) {
  const PartialShape& values = c.input(c.num_inputs() - 1);
  const int64_t rank = values.known_rank() ? c.num_inputs() - 1 + values.rank() : -1;
  int64_t count = values.known_rank() ? 1 : -1;
  for (int d = 0; values.known_rank() && d < values.rank(); ++d) {
    count = count < 0 || values.dim(d) < 0 ? -1 : count * values.dim(d);
  }
  c.set_output(0, PartialShape({count, rank}));
  c.set_output(1, PartialShape({count}));
  c.set_output(2, PartialShape({rank}));
  return absl::OkStatus();
}

MILLRACE_OP(RaggedTensorToSparse)
    .Summary("A ragged tensor as a sparse one.")
    .Input("rt_nested_splits: RAGGED_RANK * Tsplits")
    .Input("rt_dense_values: T")
    .Output("sparse_indices: int64")
    .Output("sparse_values: T")
    .Output("sparse_dense_shape: int64")
    .Attr("RAGGED_RANK: int >= 1")
    .Attr("T: type")
    .Attr("Tsplits: {int32, int64} = DT_INT64")
    .Shape(RaggedToSparseShape);
MILLRACE_KERNEL(RaggedTensorToSparse, kCpu, RaggedToSparseKernel);

}  // namespace
}  // namespace millrace::ragged
