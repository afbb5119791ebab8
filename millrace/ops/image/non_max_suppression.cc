#include "millrace/ops/image/non_max_suppression.h"

#include <algorithm>
#include <cmath>
#include <queue>

#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/image/image_floats.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

struct BoxCandidate {
  int32_t index;
  float score;
  int compared;  // with so many of the chosen boxes
};

// A scalar of type half or float.
StatusOr<float> FloatScalar(const Tensor& t, const char* name) {
  if (t.rank() != 0) return InvalidArgument(name, " must be 0-D, got shape ", t.shape().ToString());
  return *ImageFloats(t).data();
}

// The ops differ in how many of these inputs they have, in this order, and in what they return.
class NonMaxSuppressionKernel : public Kernel {
 public:
  explicit NonMaxSuppressionKernel(KernelInit& init) {
    const std::string& op = init.node().type();
    first_version_ = op == "NonMaxSuppression";
    by_overlaps_ = op == "NonMaxSuppressionWithOverlaps";
    gives_scores_ = op == "NonMaxSuppressionV5";
    if (first_version_) init.Attr("iou_threshold", &threshold_);
    if (op == "NonMaxSuppressionV4" || gives_scores_) init.Attr("pad_to_max_output_size", &pad_);
  }

  Status Compute(KernelContext& ctx) override {
    const Tensor &boxes = ctx.input(0), &scores = ctx.input(1);
    SuppressionOptions options;
    MR_RETURN_IF_ERROR(ReadOptions(ctx, &options));
    const char* const what = by_overlaps_ ? "overlaps" : "boxes";
    if (boxes.rank() != 2) return InvalidArgument(what, " must be 2-D", boxes.shape().ToString());
    const int64_t n = boxes.dim(0);
    if (by_overlaps_ && boxes.dim(1) != n) return InvalidArgument("overlaps must be square", boxes.shape().ToString());
    if (!by_overlaps_ && n > 0 && boxes.dim(1) != 4) {
      return InvalidArgument("boxes must have 4 columns", boxes.shape().ToString());
    }
    if (scores.rank() != 1) return InvalidArgument("scores must be 1-D", scores.shape().ToString());
    if (scores.dim(0) != n) return InvalidArgument("scores has incompatible shape: ", scores.shape().ToString());
    const ImageFloats box(boxes), score(scores);
    const ChosenBoxes chosen =
        SuppressNonMax({score.data(), static_cast<size_t>(n)}, options, [&](int64_t i, int64_t j) {
          return by_overlaps_ ? box.data()[i * n + j] : IntersectionOverUnion(box.data() + i * 4, box.data() + j * 4);
        });
    return Give(ctx, chosen, options.max_boxes);
  }

 private:
  Status ReadOptions(const KernelContext& ctx, SuppressionOptions* options) const {
    const Tensor& max = ctx.input(2);
    if (max.rank() != 0) return InvalidArgument("max_output_size must be 0-D, got shape ", max.shape().ToString());
    if (max.scalar<int32_t>() < 0) return InvalidArgument("output size must be non-negative");
    options->max_boxes = max.scalar<int32_t>();
    options->overlap_threshold = threshold_;
    if (ctx.num_inputs() > 3) {
      MR_ASSIGN_OR_RETURN(options->overlap_threshold,
                          FloatScalar(ctx.input(3), by_overlaps_ ? "overlap_threshold" : "iou_threshold"));
    }
    if (!by_overlaps_ && !(options->overlap_threshold >= 0 && options->overlap_threshold <= 1)) {
      return InvalidArgument("iou_threshold must be in [0, 1]");
    }
    if (ctx.num_inputs() > 4) {
      MR_ASSIGN_OR_RETURN(options->score_threshold, FloatScalar(ctx.input(4), "score_threshold"));
    }
    if (ctx.num_inputs() > 5) {
      MR_ASSIGN_OR_RETURN(options->soft_sigma, FloatScalar(ctx.input(5), "soft_nms_sigma"));
      if (options->soft_sigma < 0) return InvalidArgument("soft_nms_sigma should be non-negative");
    }
    return absl::OkStatus();
  }

  Status Give(KernelContext& ctx, const ChosenBoxes& chosen, int64_t max_boxes) const {
    const auto valid = static_cast<int64_t>(chosen.indices.size());
    const int64_t rows = pad_ ? max_boxes : valid;
    MR_ASSIGN_OR_RETURN(Tensor * indices, ctx.AllocateOutput(0, Shape({rows})));
    std::fill_n(indices->data<int32_t>(), rows, 0);
    std::copy(chosen.indices.begin(), chosen.indices.end(), indices->data<int32_t>());
    if (gives_scores_) {
      MR_ASSIGN_OR_RETURN(Tensor * scores, ctx.AllocateOutput(1, Shape({rows})));
      std::vector<float> padded = chosen.scores;
      padded.resize(static_cast<size_t>(rows));
      StoreFloats(padded.data(), scores);
    }
    if (ctx.num_outputs() > 1) {
      MR_ASSIGN_OR_RETURN(Tensor * count, ctx.AllocateOutput(ctx.num_outputs() - 1, Shape()));
      count->scalar<int32_t>() = static_cast<int32_t>(valid);
    }
    return absl::OkStatus();
  }

  bool first_version_ = false, by_overlaps_ = false, gives_scores_ = false, pad_ = false;
  float threshold_ = 0.5f;
};

Status SuppressionShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape boxes, c.WithRank(0, 2));
  MR_ASSIGN_OR_RETURN(const PartialShape scores, c.WithRank(1, 1));
  for (int i = 2; i < c.num_inputs(); ++i) MR_RETURN_IF_ERROR(c.WithRank(i, 0).status());
  if (boxes.dim(0) >= 0 && scores.dim(0) >= 0 && boxes.dim(0) != scores.dim(0)) {
    return InvalidArgument("Dimensions must be equal, but are ", boxes.dim(0), " and ", scores.dim(0));
  }
  if (!c.node().is_type("NonMaxSuppressionWithOverlaps") && boxes.dim(1) >= 0 && boxes.dim(1) != 4) {
    return InvalidArgument("Dimension must be 4 but is ", boxes.dim(1));
  }
  PartialShape rows({-1});
  std::vector<int64_t> max;
  if (c.node().AttrOr<bool>("pad_to_max_output_size", false) && c.ConstantInts(2, &max) && max.size() == 1 &&
      max[0] >= 0) {
    rows.set_dim(0, max[0]);
  }
  for (int i = 0; i < c.num_outputs(); ++i) c.set_output(i, rows);
  if (c.num_outputs() > 1) c.set_output(c.num_outputs() - 1, PartialShape::Scalar());
  return absl::OkStatus();
}

MILLRACE_OP(NonMaxSuppression)
    .Summary("The best of overlapping boxes.")
    .Input("boxes: float")
    .Input("scores: float")
    .Input("max_output_size: int32")
    .Output("selected_indices: int32")
    .Attr("iou_threshold: float = 0.5")
    .Shape(SuppressionShape)
    .NotDifferentiable();
MILLRACE_OP(NonMaxSuppressionV2)
    .Summary("The best of overlapping boxes; the threshold is an input.")
    .Input("boxes: T")
    .Input("scores: T")
    .Input("max_output_size: int32")
    .Input("iou_threshold: T_threshold")
    .Output("selected_indices: int32")
    .Attr("T: {half, float} = DT_FLOAT")
    .Attr("T_threshold: {half, float} = DT_FLOAT")
    .Shape(SuppressionShape)
    .NotDifferentiable();
MILLRACE_OP(NonMaxSuppressionV3)
    .Summary("The best of overlapping boxes whose scores are above a threshold.")
    .Input("boxes: T")
    .Input("scores: T")
    .Input("max_output_size: int32")
    .Input("iou_threshold: T_threshold")
    .Input("score_threshold: T_threshold")
    .Output("selected_indices: int32")
    .Attr("T: {half, float} = DT_FLOAT")
    .Attr("T_threshold: {half, float} = DT_FLOAT")
    .Shape(SuppressionShape)
    .NotDifferentiable();
MILLRACE_OP(NonMaxSuppressionV4)
    .Summary("The best of overlapping boxes and how many they are, padded if asked for.")
    .Input("boxes: T")
    .Input("scores: T")
    .Input("max_output_size: int32")
    .Input("iou_threshold: T_threshold")
    .Input("score_threshold: T_threshold")
    .Output("selected_indices: int32")
    .Output("valid_outputs: int32")
    .Attr("T: {half, float} = DT_FLOAT")
    .Attr("T_threshold: {half, float} = DT_FLOAT")
    .Attr("pad_to_max_output_size: bool = false")
    .Shape(SuppressionShape)
    .NotDifferentiable();
MILLRACE_OP(NonMaxSuppressionV5)
    .Summary("The best of overlapping boxes with their scores, which overlaps may lower.")
    .Input("boxes: T")
    .Input("scores: T")
    .Input("max_output_size: int32")
    .Input("iou_threshold: T")
    .Input("score_threshold: T")
    .Input("soft_nms_sigma: T")
    .Output("selected_indices: int32")
    .Output("selected_scores: T")
    .Output("valid_outputs: int32")
    .Attr("T: {half, float} = DT_FLOAT")
    .Attr("pad_to_max_output_size: bool = false")
    .Shape(SuppressionShape)
    .NotDifferentiable();
MILLRACE_OP(NonMaxSuppressionWithOverlaps)
    .Summary("The best of boxes whose overlaps are given.")
    .Input("overlaps: float")
    .Input("scores: float")
    .Input("max_output_size: int32")
    .Input("overlap_threshold: float")
    .Input("score_threshold: float")
    .Output("selected_indices: int32")
    .Shape(SuppressionShape)
    .NotDifferentiable();
MILLRACE_KERNEL(NonMaxSuppression, kCpu, NonMaxSuppressionKernel);
MILLRACE_KERNEL(NonMaxSuppressionV2, kCpu, NonMaxSuppressionKernel);
MILLRACE_KERNEL(NonMaxSuppressionV3, kCpu, NonMaxSuppressionKernel);
MILLRACE_KERNEL(NonMaxSuppressionV4, kCpu, NonMaxSuppressionKernel);
MILLRACE_KERNEL(NonMaxSuppressionV5, kCpu, NonMaxSuppressionKernel);
MILLRACE_KERNEL(NonMaxSuppressionWithOverlaps, kCpu, NonMaxSuppressionKernel);

}  // namespace

float IntersectionOverUnion(const float* a, const float* b) {
  struct Sides {
    float top, left, bottom, right, area;
    explicit Sides(const float* c)
        : top(std::min(c[0], c[2])),
          left(std::min(c[1], c[3])),
          bottom(std::max(c[0], c[2])),
          right(std::max(c[1], c[3])),
          area((bottom - top) * (right - left)) {}
  };
  const Sides p(a), q(b);
  if (p.area <= 0 || q.area <= 0) return 0;
  const float height = std::max(std::min(p.bottom, q.bottom) - std::max(p.top, q.top), 0.0f);
  const float width = std::max(std::min(p.right, q.right) - std::max(p.left, q.left), 0.0f);
  return height * width / (p.area + q.area - height * width);
}

ChosenBoxes SuppressNonMax(absl::Span<const float> scores, const SuppressionOptions& options,
                           absl::FunctionRef<float(int64_t, int64_t)> overlap) {
  const auto after = [](const BoxCandidate& a, const BoxCandidate& b) {
    return a.score < b.score || (a.score == b.score && a.index > b.index);
  };
  std::priority_queue<BoxCandidate, std::vector<BoxCandidate>, decltype(after)> queue(after);
  for (size_t i = 0; i < scores.size(); ++i) {
    if (scores[i] > options.score_threshold) queue.push({static_cast<int32_t>(i), scores[i], 0});
  }
  const bool soft = options.soft_sigma > 0;
  const float scale = soft ? -0.5f / options.soft_sigma : 0;
  ChosenBoxes chosen;
  while (static_cast<int64_t>(chosen.indices.size()) < options.max_boxes && !queue.empty()) {
    BoxCandidate next = queue.top();
    queue.pop();
    const float original = next.score;
    bool dropped = false;
    for (int j = static_cast<int>(chosen.indices.size()) - 1; j >= next.compared; --j) {
      const float shared = overlap(next.index, chosen.indices[j]);
      const bool too_much = shared > options.overlap_threshold;
      next.score *= too_much && !soft ? 0 : std::exp(scale * shared * shared);
      dropped = !soft && too_much;
      if (dropped || next.score <= options.score_threshold) break;
    }
    next.compared = static_cast<int>(chosen.indices.size());
    if (dropped) continue;
    if (next.score == original) {
      chosen.indices.push_back(next.index);
      chosen.scores.push_back(next.score);
    } else if (next.score > options.score_threshold) {
      queue.push(next);  // its turn comes with its lower score
    }
  }
  return chosen;
}

}  // namespace millrace
