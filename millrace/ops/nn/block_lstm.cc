// BlockLSTM: all time steps of an LSTM layer in one op, and its gradient.
//
// What does not depend on the step before is computed for all steps at once: the inputs' share of the gates, and in the
// gradient those of inputs and weights. The steps themselves go over blocks of examples, which are independent of each
// other, so that threads meet only at the end of a sequence. The blocks depend on the batch size alone.
#include <algorithm>
#include <atomic>
#include <cstring>

#include "millrace/graph/gradient.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/kernels/gemm.h"
#include "millrace/ops/kernels/panel_product.h"
#include "millrace/ops/kernels/vector_math.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

// Examples of a block.
constexpr int64_t kBlockRows = 8;
// Columns of a piece of work when the gradients of the peepholes are summed.
constexpr int64_t kSumColumns = 128;

// The inputs that BlockLSTM and BlockLSTMGrad begin with.
enum LstmInput { kSteps, kX, kCellBefore, kOutputBefore, kW, kWci, kWcf, kWco, kB };
// The outputs of BlockLSTM, which are the next inputs of BlockLSTMGrad, and then the gradients of two of them.
enum LstmOutput { kI, kCell, kF, kO, kCi, kCo, kH };

Status BlockLstmShape(ShapeContext& c) {
  MR_RETURN_IF_ERROR(c.WithRank(kSteps, 0).status());
  MR_ASSIGN_OR_RETURN(const PartialShape x, c.WithRank(kX, 3));
  MR_ASSIGN_OR_RETURN(const PartialShape b, c.WithRank(kB, 1));
  MR_ASSIGN_OR_RETURN(const PartialShape cell, c.WithRank(kCellBefore, 2));
  const int64_t units = cell.dim(1) >= 0 ? cell.dim(1) : b.dim(0) >= 0 ? b.dim(0) / 4 : -1;
  const int64_t batch = x.dim(1) >= 0 ? x.dim(1) : cell.dim(0);
  for (int i = kI; i <= kH; ++i) c.set_output(i, {x.dim(0), batch, units});
  return absl::OkStatus();
}

Status BlockLstmGradShape(ShapeContext& c) {
  for (int i = 0; i < 8; ++i) c.set_output(i, c.input(kX + i));
  return absl::OkStatus();
}

// The gates are inner values: only the memory and the output have gradients.
Status BlockLstmGradient(GradientContext& c) {
  std::vector<Endpoint> inputs;
  for (int i = kSteps; i <= kB; ++i) inputs.push_back(c.input(i));
  for (int i = kI; i <= kH; ++i) inputs.push_back(c.output(i));
  inputs.push_back(c.grad(kCell));
  inputs.push_back(c.grad(kH));
  Node* const grads = c.AddNode("BlockLSTMGrad", inputs, {{"use_peephole", c.AttrOr("use_peephole", false)}});
  if (grads == nullptr) return absl::OkStatus();
  for (int i = 0; i < 8; ++i) c.set_input_grad(kX + i, Endpoint{grads, i});
  return absl::OkStatus();
}

MILLRACE_OP(BlockLSTM)
    .Summary("All time steps of an LSTM layer.")
    .Input("seq_len_max: int64")
    .Input("x: T")
    .Input("cs_prev: T")
    .Input("h_prev: T")
    .Input("w: T")
    .Input("wci: T")
    .Input("wcf: T")
    .Input("wco: T")
    .Input("b: T")
    .Output("i: T")
    .Output("cs: T")
    .Output("f: T")
    .Output("o: T")
    .Output("ci: T")
    .Output("co: T")
    .Output("h: T")
    .Attr("forget_bias: float = 1")
    .Attr("cell_clip: float = 3")
    .Attr("use_peephole: bool = false")
    .Attr("T: {half, float}")
    .Shape(BlockLstmShape)
    .Gradient(BlockLstmGradient);

MILLRACE_OP(BlockLSTMGrad)
    .Summary("The gradient of BlockLSTM.")
    .Input("seq_len_max: int64")
    .Input("x: T")
    .Input("cs_prev: T")
    .Input("h_prev: T")
    .Input("w: T")
    .Input("wci: T")
    .Input("wcf: T")
    .Input("wco: T")
    .Input("b: T")
    .Input("i: T")
    .Input("cs: T")
    .Input("f: T")
    .Input("o: T")
    .Input("ci: T")
    .Input("co: T")
    .Input("h: T")
    .Input("cs_grad: T")
    .Input("h_grad: T")
    .Output("x_grad: T")
    .Output("cs_prev_grad: T")
    .Output("h_prev_grad: T")
    .Output("w_grad: T")
    .Output("wci_grad: T")
    .Output("wcf_grad: T")
    .Output("wco_grad: T")
    .Output("b_grad: T")
    .Attr("use_peephole: bool")
    .Attr("T: {half, float}")
    .Shape(BlockLstmGradShape)
    .NotDifferentiable();

struct LstmSizes {
  int64_t time = 0, batch = 0, depth = 0, units = 0;
  int64_t steps = 0;  // at most time: what is beyond is zero

  int64_t gates() const { return 4 * units; }
  int64_t step_floats() const { return batch * units; }
};

Status CheckShape(const KernelContext& ctx, int i, const char* name, const Shape& want) {
  if (ctx.input(i).shape() == want) return absl::OkStatus();
  return InvalidArgument(name, " must have shape ", want.ToString(), ", but has ", ctx.input(i).shape().ToString());
}

StatusOr<LstmSizes> SizesOf(const KernelContext& ctx) {
  const Tensor& x = ctx.input(kX);
  const Tensor& cell = ctx.input(kCellBefore);
  if (x.rank() != 3)
    return InvalidArgument("x must be 3-dimensional (time, batch, depth), but has shape ", x.shape().ToString());
  if (cell.rank() != 2) return InvalidArgument("cs_prev must be a matrix, but has shape ", cell.shape().ToString());
  if (ctx.input(kSteps).num_elements() != 1) {
    return InvalidArgument("seq_len_max must be a scalar, but has shape ", ctx.input(kSteps).shape().ToString());
  }
  const LstmSizes s{.time = x.dim(0),
                    .batch = x.dim(1),
                    .depth = x.dim(2),
                    .units = cell.dim(1),
                    .steps = ctx.input(kSteps).scalar<int64_t>()};
  if (s.steps < 0 || s.steps > s.time) {
    return InvalidArgument("seq_len_max is ", s.steps, ", but x has ", s.time, " time steps");
  }
  MR_RETURN_IF_ERROR(CheckShape(ctx, kCellBefore, "cs_prev", Shape({s.batch, s.units})));
  MR_RETURN_IF_ERROR(CheckShape(ctx, kOutputBefore, "h_prev", Shape({s.batch, s.units})));
  MR_RETURN_IF_ERROR(CheckShape(ctx, kW, "w", Shape({s.depth + s.units, s.gates()})));
  MR_RETURN_IF_ERROR(CheckShape(ctx, kB, "b", Shape({s.gates()})));
  for (const auto& [i, name] : {std::pair{kWci, "wci"}, {kWcf, "wcf"}, {kWco, "wco"}}) {
    MR_RETURN_IF_ERROR(CheckShape(ctx, i, name, Shape({s.units})));
  }
  return s;
}

// The part of w that the previous output is multiplied with, or its transpose, packed.
StatusOr<Tensor> PackRecurrent(KernelContext& ctx, const LstmSizes& s, bool transpose) {
  const int64_t k = transpose ? s.gates() : s.units, n = transpose ? s.units : s.gates();
  MR_ASSIGN_OR_RETURN(Tensor packed, ctx.AllocateTemp(DType::kFloat, Shape({PackedFloats(k, n)})));
  const MatrixView view{
      .rows = k, .cols = n, .row_stride = transpose ? 1 : s.gates(), .col_stride = transpose ? s.gates() : 1};
  PackPanels(ctx.input(kW).data<float>() + s.depth * s.gates(), view, packed.data<float>());
  return packed;
}

class BlockLstmKernel : public Kernel {
 public:
  explicit BlockLstmKernel(KernelInit& init) {
    init.Attr("forget_bias", &forget_bias_);
    init.Attr("cell_clip", &cell_clip_);
    init.Attr("use_peephole", &use_peephole_);
    if (init.output_type(0) != DType::kFloat) FailDType(init, init.output_type(0));
  }

  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const LstmSizes s, SizesOf(ctx));
    float* out[kH + 1];
    for (int i = kI; i <= kH; ++i) {
      MR_ASSIGN_OR_RETURN(Tensor* const t, ctx.AllocateOutput(i, Shape({s.time, s.batch, s.units})));
      out[i] = t->data<float>();
      const int64_t done = s.steps * s.step_floats();
      std::fill(out[i] + done, out[i] + t->num_elements(), 0.0f);
    }
    if (s.steps * s.step_floats() == 0) return absl::OkStatus();
    MR_ASSIGN_OR_RETURN(const Tensor packed, PackRecurrent(ctx, s, false));
    MR_ASSIGN_OR_RETURN(Tensor gates, ctx.AllocateTemp(DType::kFloat, Shape({s.steps * s.batch, s.gates()})));
    // The inputs' share of the gates for all steps.
    const Gemm* const gemm = Gemm::Get({.m = s.steps * s.batch, .n = s.gates(), .k = s.depth});
    MR_RETURN_IF_ERROR(gemm->Run(ctx.device()->intra_op_pool(), ctx.input(kX).data<float>(),
                                 ctx.input(kW).data<float>(), gates.data<float>()));
    MR_ASSIGN_OR_RETURN(Tensor bias, ctx.AllocateTemp(DType::kFloat, Shape({s.gates()})));
    std::copy_n(ctx.input(kB).data<float>(), s.gates(), bias.data<float>());
    for (int64_t j = 2 * s.units; j < 3 * s.units; ++j) bias.data<float>()[j] += forget_bias_;
    ctx.ParallelFor((s.batch + kBlockRows - 1) / kBlockRows, 1, [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) {
        const int64_t first = block * kBlockRows, rows = std::min(kBlockRows, s.batch - first);
        const float* h = ctx.input(kOutputBefore).data<float>() + first * s.units;
        const float* cell = ctx.input(kCellBefore).data<float>() + first * s.units;
        for (int64_t t = 0; t < s.steps; ++t) {
          float* const z = gates.data<float>() + (t * s.batch + first) * s.gates();
          AddPanelProduct(h, s.units, rows, packed.data<float>(), s.units, s.gates(), z, s.gates());
          const int64_t at = (t * s.batch + first) * s.units;
          for (int64_t r = 0; r < rows; ++r) {
            float* row[kH + 1];
            for (int i = kI; i <= kH; ++i) row[i] = out[i] + at + r * s.units;
            Row(ctx, s.units, bias.data<float>(), z + r * s.gates(), cell + r * s.units, row);
          }
          h = out[kH] + at;
          cell = out[kCell] + at;
        }
      }
    });
    return absl::OkStatus();
  }

 private:
  // One example in one step: z has the sums of the gates i, ci, f and o, without their biases.
  void Row(const KernelContext& ctx, int64_t n, const float* bias, float* __restrict z, const float* cell,
           float* const* out) const {
    for (int64_t j = 0; j < 4 * n; ++j) z[j] += bias[j];
    if (use_peephole_) {
      const float* const wci = ctx.input(kWci).data<float>();
      const float* const wcf = ctx.input(kWcf).data<float>();
      for (int64_t j = 0; j < n; ++j) z[j] += cell[j] * wci[j];
      for (int64_t j = 0; j < n; ++j) z[2 * n + j] += cell[j] * wcf[j];
    }
    vector::Sigmoid(z, out[kI], n);
    vector::Tanh(z + n, out[kCi], n);
    vector::Sigmoid(z + 2 * n, out[kF], n);
    for (int64_t j = 0; j < n; ++j) out[kCell][j] = out[kCi][j] * out[kI][j] + out[kF][j] * cell[j];
    if (cell_clip_ > 0) {
      for (int64_t j = 0; j < n; ++j) out[kCell][j] = std::clamp(out[kCell][j], -cell_clip_, cell_clip_);
    }
    if (use_peephole_) {
      const float* const wco = ctx.input(kWco).data<float>();
      for (int64_t j = 0; j < n; ++j) z[3 * n + j] += out[kCell][j] * wco[j];
    }
    vector::Sigmoid(z + 3 * n, out[kO], n);
    vector::Tanh(out[kCell], out[kCo], n);
    for (int64_t j = 0; j < n; ++j) out[kH][j] = out[kO][j] * out[kCo][j];
  }

  float forget_bias_ = 1, cell_clip_ = 3;
  bool use_peephole_ = false;
};

class BlockLstmGradKernel : public Kernel {
 public:
  explicit BlockLstmGradKernel(KernelInit& init) {
    init.Attr("use_peephole", &use_peephole_);
    if (init.output_type(0) != DType::kFloat) FailDType(init, init.output_type(0));
  }

  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const LstmSizes s, SizesOf(ctx));
    static constexpr const char* kNames[] = {"i", "cs", "f", "o", "ci", "co", "h", "cs_grad", "h_grad"};
    const float* saved[std::size(kNames)];
    for (int i = 0; i < static_cast<int>(std::size(kNames)); ++i) {
      MR_RETURN_IF_ERROR(CheckShape(ctx, kB + 1 + i, kNames[i], Shape({s.time, s.batch, s.units})));
      saved[i] = ctx.input(kB + 1 + i).data<float>();
    }
    float* grads[8];
    for (int i = 0; i < 8; ++i) {
      MR_ASSIGN_OR_RETURN(Tensor* const t, ctx.AllocateOutput(i, ctx.input(kX + i).shape()));
      grads[i] = t->data<float>();
      // Products and sums overwrite all of the others.
      const bool is_overwritten = i == kX - kX || i == kW - kX || i == kB - kX;
      if (!is_overwritten || s.steps * s.step_floats() == 0) std::fill_n(grads[i], t->num_elements(), 0.0f);
    }
    std::fill(grads[0] + s.steps * s.batch * s.depth, grads[0] + s.time * s.batch * s.depth, 0.0f);
    if (s.steps * s.step_floats() == 0) return absl::OkStatus();

    const int64_t rows = s.steps * s.batch;
    MR_ASSIGN_OR_RETURN(Tensor gates, ctx.AllocateTemp(DType::kFloat, Shape({rows, s.gates()})));
    MR_RETURN_IF_ERROR(GateGradients(ctx, s, saved, gates.data<float>(), grads));
    if (use_peephole_) SumPeepholes(ctx, s, saved, gates.data<float>(), grads);

    // The previous output of each step.
    MR_ASSIGN_OR_RETURN(Tensor before, ctx.AllocateTemp(DType::kFloat, Shape({rows, s.units})));
    std::copy_n(ctx.input(kOutputBefore).data<float>(), s.step_floats(), before.data<float>());
    std::copy_n(saved[kH], (s.steps - 1) * s.step_floats(), before.data<float>() + s.step_floats());
    ThreadPool* const pool = ctx.device()->intra_op_pool();
    const float* const x = ctx.input(kX).data<float>();
    const float* const w = ctx.input(kW).data<float>();
    const float* const dz = gates.data<float>();
    const Gemm* const to_x = Gemm::Get({.m = rows, .n = s.depth, .k = s.gates(), .transpose_b = true});
    MR_RETURN_IF_ERROR(to_x->Run(pool, dz, w, grads[0]));
    const Gemm* const to_wx = Gemm::Get({.m = s.depth, .n = s.gates(), .k = rows, .transpose_a = true});
    MR_RETURN_IF_ERROR(to_wx->Run(pool, x, dz, grads[3]));
    const Gemm* const to_wh = Gemm::Get({.m = s.units, .n = s.gates(), .k = rows, .transpose_a = true});
    return to_wh->Run(pool, before.data<float>(), dz, grads[3] + s.depth * s.gates());
  }

 private:
  // The gradients of the gates' sums in all steps, and of the state before the first one.
  Status GateGradients(KernelContext& ctx, const LstmSizes& s, const float* const* saved, float* gates,
                       float* const* grads) const {
    MR_ASSIGN_OR_RETURN(const Tensor packed, PackRecurrent(ctx, s, true));
    const int64_t blocks = (s.batch + kBlockRows - 1) / kBlockRows;
    // Each block's share of the gradient of the bias.
    MR_ASSIGN_OR_RETURN(Tensor shares, ctx.AllocateTemp(DType::kFloat, Shape({blocks, s.gates()})));
    ctx.ParallelFor(blocks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) {
        const int64_t first = block * kBlockRows, rows = std::min(kBlockRows, s.batch - first);
        float* const share = shares.data<float>() + block * s.gates();
        std::fill_n(share, s.gates(), 0.0f);
        // What flows back from the step after, starting with nothing.
        float* const d_cell = grads[kCellBefore - kX] + first * s.units;
        float* const d_h = grads[kOutputBefore - kX] + first * s.units;
        for (int64_t t = s.steps - 1; t >= 0; --t) {
          float* const dz = gates + (t * s.batch + first) * s.gates();
          const float* const before = t > 0 ? saved[kCell] + ((t - 1) * s.batch + first) * s.units
                                            : ctx.input(kCellBefore).data<float>() + first * s.units;
          for (int64_t r = 0; r < rows; ++r) {
            Row(ctx, s.units, saved, (t * s.batch + first + r) * s.units, before + r * s.units, d_cell + r * s.units,
                d_h + r * s.units, dz + r * s.gates());
            AddRow(dz + r * s.gates(), s.gates(), share);
          }
          std::fill_n(d_h, rows * s.units, 0.0f);
          AddPanelProduct(dz, s.gates(), rows, packed.data<float>(), s.gates(), s.units, d_h, s.units);
        }
      }
    });
    float* const bias = grads[kB - kX];
    std::fill_n(bias, s.gates(), 0.0f);
    for (int64_t block = 0; block < blocks; ++block) {
      AddRow(shares.data<float>() + block * s.gates(), s.gates(), bias);
    }
    return absl::OkStatus();
  }

  // Compiled to vectors because the two do not overlap.
  static void AddRow(const float* __restrict row, int64_t n, float* __restrict sum) {
    for (int64_t j = 0; j < n; ++j) sum[j] += row[j];
  }

  // One example in one step, at `at` of the saved tensors. d_cell and d_h come from the step after; d_cell becomes that
  // of the memory before.
  void Row(const KernelContext& ctx, int64_t n, const float* const* saved, int64_t at, const float* before,
           float* __restrict d_cell, const float* d_h, float* __restrict dz) const {
    const float* const i = saved[kI] + at;
    const float* const f = saved[kF] + at;
    const float* const o = saved[kO] + at;
    const float* const ci = saved[kCi] + at;
    const float* const co = saved[kCo] + at;
    const float* const cell_grad = saved[kH + 1] + at;
    const float* const h_grad = saved[kH + 2] + at;
    for (int64_t j = 0; j < n; ++j) {
      const float dh = d_h[j] + h_grad[j];
      dz[3 * n + j] = o[j] * (1 - o[j]) * co[j] * dh;
      d_cell[j] += (1 - co[j] * co[j]) * o[j] * dh + cell_grad[j];
    }
    if (use_peephole_) {
      const float* const wco = ctx.input(kWco).data<float>();
      for (int64_t j = 0; j < n; ++j) d_cell[j] += dz[3 * n + j] * wco[j];
    }
    for (int64_t j = 0; j < n; ++j) {
      const float dc = d_cell[j];
      dz[j] = i[j] * (1 - i[j]) * ci[j] * dc;
      dz[n + j] = (1 - ci[j] * ci[j]) * i[j] * dc;
      dz[2 * n + j] = f[j] * (1 - f[j]) * before[j] * dc;
      d_cell[j] = f[j] * dc;
    }
    if (use_peephole_) {
      const float* const wci = ctx.input(kWci).data<float>();
      const float* const wcf = ctx.input(kWcf).data<float>();
      for (int64_t j = 0; j < n; ++j) d_cell[j] += dz[j] * wci[j] + dz[2 * n + j] * wcf[j];
    }
  }

  // The gradients of the peepholes: sums over all steps and examples, in their order.
  void SumPeepholes(KernelContext& ctx, const LstmSizes& s, const float* const* saved, const float* gates,
                    float* const* grads) const {
    const int64_t rows = s.steps * s.batch, n = s.units;
    ctx.ParallelFor(n, kSumColumns, [&](int64_t begin, int64_t end) {
      for (int64_t r = 0; r < rows; ++r) {
        const float* const dz = gates + r * s.gates();
        const float* const cell = saved[kCell] + r * n;
        const float* const before = r < s.batch ? ctx.input(kCellBefore).data<float>() + r * n : cell - s.step_floats();
        for (int64_t j = begin; j < end; ++j) {
          grads[kWci - kX][j] += dz[j] * before[j];
          grads[kWcf - kX][j] += dz[2 * n + j] * before[j];
          grads[kWco - kX][j] += dz[3 * n + j] * cell[j];
        }
      }
    });
  }

  bool use_peephole_ = false;
};

MILLRACE_KERNEL(BlockLSTM, kCpu, BlockLstmKernel);
MILLRACE_KERNEL(BlockLSTMGrad, kCpu, BlockLstmGradKernel);

}  // namespace
}  // namespace millrace
