// CTCLoss: the loss of connectionist temporal classification, computed forwards and backwards in logarithms.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "millrace/graph/gradient.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/nn/ctc_input.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

Status CtcLossShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape inputs, c.WithRank(0, 3));
  c.set_output(0, PartialShape({inputs.dim(1)}));
  c.set_output(1, inputs);
  return absl::OkStatus();
}

// The kernel computes the gradient of the logits beside the loss.
Status CtcLossGradient(GradientContext& c) {
  c.set_input_grad(0, c.Op("Mul", {c.Op("ExpandDims", {c.grad(0), c.Scalar<int32_t>(-1)}), c.output(1)}));
  return c.status();
}

MILLRACE_OP(CTCLoss)
    .Summary("The loss of connectionist temporal classification, and its gradient with respect to the logits.")
    .Input("inputs: T")
    .Input("labels_indices: int64")
    .Input("labels_values: int32")
    .Input("sequence_length: int32")
    .Output("loss: T")
    .Output("gradient: T")
    .Attr("preprocess_collapse_repeated: bool = false")
    .Attr("ctc_merge_repeated: bool = true")
    .Attr("ignore_longer_outputs_than_inputs: bool = false")
    .Attr("T: {float, double} = float")
    .Shape(CtcLossShape)
    .Gradient(CtcLossGradient);

// One sequence: labels with blanks around them, and the probabilities of classes by time. Computed in double.
class CtcSequence {
 public:
  CtcSequence(const std::vector<int>& labels, int blank, bool merge_repeated, int64_t steps, int64_t classes)
      : labels_(2 * labels.size() + 1, blank),
        blank_(blank),
        merge_(merge_repeated),
        steps_(steps),
        classes_(classes),
        probabilities_(steps * classes) {
    for (size_t i = 0; i < labels.size(); ++i) labels_[2 * i + 1] = labels[i];
  }

  // The logits of one step.
  template <typename T>
  void SetStep(int64_t t, const T* logits) {
    const double largest = *std::max_element(logits, logits + classes_);
    double sum = 0;
    double* p = &probabilities_[t * classes_];
    for (int64_t c = 0; c < classes_; ++c) sum += p[c] = std::exp(logits[c] - largest);
    for (int64_t c = 0; c < classes_; ++c) p[c] /= sum;
  }

  // The negative logarithm of the labels' probability; grad(t, row) gets the gradient of step t.
  template <typename Row>
  double Run(Row&& grad) {
    Forward();
    Backward();
    double total = kLogZero;
    for (int64_t u = 0; u < size(); ++u) total = LogSumExp(total, alpha(u, 0) + beta(u, 0));
    std::vector<double> share(classes_);
    for (int64_t t = 0; t < steps_; ++t) {
      std::fill(share.begin(), share.end(), kLogZero);
      for (int64_t u = 0; u < size(); ++u) {
        share[labels_[u]] = LogSumExp(share[labels_[u]], alpha(u, t) + beta(u, t));
      }
      const double* p = &probabilities_[t * classes_];
      for (int64_t c = 0; c < classes_; ++c) {
        grad(t, c, p[c] - (total == kLogZero ? 0 : std::exp(share[c] - total)));
      }
    }
    return -total;
  }

 private:
  int64_t size() const { return static_cast<int64_t>(labels_.size()); }
  double& alpha(int64_t u, int64_t t) { return alpha_[t * size() + u]; }
  double& beta(int64_t u, int64_t t) { return beta_[t * size() + u]; }
  double LogP(int64_t u, int64_t t) const { return std::log(probabilities_[t * classes_ + labels_[u]]); }
  bool MayStay(int64_t u) const { return merge_ || labels_[u] == blank_; }
  // Whether a path may leave out the blank between positions u - 2 and u.
  bool MaySkip(int64_t u) const { return labels_[u] != blank_ && !(merge_ && labels_[u] == labels_[u - 2]); }
  // The positions that a path can be at, at time t.
  int64_t First(int64_t t) const { return std::max<int64_t>(0, size() - 2 * (steps_ - t)); }
  int64_t End(int64_t t) const { return std::min(size(), 2 * (t + 1)); }

  void Forward() {
    alpha_.assign(steps_ * size(), kLogZero);
    for (int64_t u = 0; u < std::min<int64_t>(2, size()); ++u) alpha(u, 0) = LogP(u, 0);
    for (int64_t t = 1; t < steps_; ++t) {
      for (int64_t u = First(t); u < End(t); ++u) {
        double sum = MayStay(u) ? alpha(u, t - 1) : kLogZero;
        if (u > 0) sum = LogSumExp(sum, alpha(u - 1, t - 1));
        if (u > 1 && MaySkip(u)) sum = LogSumExp(sum, alpha(u - 2, t - 1));
        alpha(u, t) = LogP(u, t) + sum;
      }
    }
  }

  void Backward() {
    beta_.assign(steps_ * size(), kLogZero);
    for (int64_t u = std::max<int64_t>(0, size() - 2); u < size(); ++u) beta(u, steps_ - 1) = 0;
    for (int64_t t = steps_ - 2; t >= 0; --t) {
      for (int64_t u = First(t); u < End(t); ++u) {
        double sum = MayStay(u) ? beta(u, t + 1) + LogP(u, t + 1) : kLogZero;
        if (u + 1 < size()) sum = LogSumExp(sum, beta(u + 1, t + 1) + LogP(u + 1, t + 1));
        if (u + 2 < size() && MaySkip(u + 2)) sum = LogSumExp(sum, beta(u + 2, t + 1) + LogP(u + 2, t + 1));
        beta(u, t) = sum;
      }
    }
  }

  std::vector<int> labels_;
  const int blank_;
  const bool merge_;
  const int64_t steps_, classes_;
  std::vector<double> probabilities_, alpha_, beta_;
};

class CtcLossKernel : public Kernel {
 public:
  explicit CtcLossKernel(KernelInit& init) {
    init.Attr("preprocess_collapse_repeated", &collapse_);
    init.Attr("ctc_merge_repeated", &merge_);
    init.Attr("ignore_longer_outputs_than_inputs", &ignore_longer_);
  }

  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const CtcInput in, CtcInput::Read(ctx.input(0), ctx.input(3)));
    MR_ASSIGN_OR_RETURN(const std::vector<std::vector<int>> labels, Labels(ctx, in));
    MR_ASSIGN_OR_RETURN(Tensor * loss, ctx.AllocateOutput(0, Shape({in.batch})));
    MR_ASSIGN_OR_RETURN(Tensor * grad, ctx.AllocateOutput(1, ctx.input(0).shape()));
    DispatchType(Types<float, double>{}, ctx.input(0).dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      std::fill_n(loss->data<T>(), loss->num_elements(), T(0));
      std::fill_n(grad->data<T>(), grad->num_elements(), T(0));
      ctx.ParallelFor(in.batch, 1, [&](int64_t begin, int64_t end) {
        for (int64_t b = begin; b < end; ++b) {
          if (in.lengths[b] == 0 || Required(labels[b]) > in.lengths[b]) continue;
          CtcSequence sequence(labels[b], static_cast<int>(in.classes - 1), merge_, in.lengths[b], in.classes);
          for (int64_t t = 0; t < in.lengths[b]; ++t) {
            sequence.SetStep(t, ctx.input(0).data<T>() + in.Row(t, b));
          }
          loss->data<T>()[b] = static_cast<T>(sequence.Run(
              [&](int64_t t, int64_t c, double value) { grad->data<T>()[in.Row(t, b) + c] = static_cast<T>(value); }));
        }
      });
    });
    return absl::OkStatus();
  }

 private:
  // The steps that a path needs: one for each label, and one for the blank between equal ones.
  static int64_t Required(const std::vector<int>& labels) {
    auto required = static_cast<int64_t>(labels.size());
    for (size_t i = 1; i < labels.size(); ++i) required += labels[i] == labels[i - 1] ? 1 : 0;
    return required;
  }

  StatusOr<std::vector<std::vector<int>>> Labels(const KernelContext& ctx, const CtcInput& in) const {
    const Tensor& indices = ctx.input(1);
    const Tensor& values = ctx.input(2);
    if (indices.rank() != 2 || indices.dim(1) != 2)
      return InvalidArgument("labels_indices is not a matrix of 2 columns");
    if (values.rank() != 1) return InvalidArgument("labels_values is not a vector");
    if (indices.dim(0) != values.dim(0)) {
      return InvalidArgument("labels_indices and labels_values must contain the same number of rows, but saw shapes: ",
                             indices.shape().ToString(), " vs. ", values.shape().ToString());
    }
    std::vector<std::vector<int>> labels(in.batch);
    // After a null label (one beyond the classes) there may be only others.
    std::vector<bool> ended(in.batch);
    for (int64_t i = 0; i < values.dim(0); ++i) {
      const int64_t b = indices.data<int64_t>()[2 * i];
      const int label = values.data<int32_t>()[i];
      if (b < 0 || b >= in.batch) {
        return InvalidArgument("labels batch index must be between 0 and ", in.batch, " but saw: ", b);
      }
      if (label < 0) return InvalidArgument("All labels must be nonnegative integers, batch: ", b, " label: ", label);
      const bool null = label >= in.classes - 1;
      if (ended[b] && !null) {
        return InvalidArgument("Saw a non-null label (index >= num_classes - 1) following a null label, batch: ", b,
                               " num_classes: ", in.classes, " label: ", label);
      }
      ended[b] = null;
      if (null || (collapse_ && !labels[b].empty() && labels[b].back() == label)) continue;
      labels[b].push_back(label);
    }
    for (int64_t b = 0; b < in.batch; ++b) {
      if (labels[b].empty()) return InvalidArgument("Labels length is zero in batch ", b);
      if (!ignore_longer_ && in.lengths[b] > 0 && Required(labels[b]) > in.lengths[b]) {
        return InvalidArgument("Not enough time for target transition sequence (required: ", Required(labels[b]),
                               ", available: ", in.lengths[b], ") in batch ", b,
                               ". ignore_longer_outputs_than_inputs leaves such sequences out");
      }
    }
    return labels;
  }

  bool collapse_ = false, merge_ = true, ignore_longer_ = false;
};

MILLRACE_KERNEL(CTCLoss, kCpu, CtcLossKernel);

}  // namespace
}  // namespace millrace
