// CombinedNonMaxSuppression: the best boxes of each class, then the best of all classes.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/image/non_max_suppression.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

struct Detection {
  float score;
  int32_t cls;
  int32_t box;
};

class CombinedSuppressionKernel : public Kernel {
 public:
  explicit CombinedSuppressionKernel(KernelInit& init) {
    init.Attr("pad_per_class", &pad_per_class_);
    init.Attr("clip_boxes", &clip_);
  }
  bool is_expensive() const override { return true; }

  Status Compute(KernelContext& ctx) override {
    const Tensor &boxes = ctx.input(0), &scores = ctx.input(1);
    MR_RETURN_IF_ERROR(Check(ctx));
    SuppressionOptions options;
    options.max_boxes = std::min<int64_t>(ctx.input(2).scalar<int32_t>(), boxes.dim(1));
    options.overlap_threshold = ctx.input(4).scalar<float>();
    options.score_threshold = ctx.input(5).scalar<float>();
    const int64_t batch = boxes.dim(0), classes = scores.dim(2), total = ctx.input(3).scalar<int32_t>();
    const int64_t rows = pad_per_class_ ? std::min<int64_t>(total, ctx.input(2).scalar<int32_t>() * classes) : total;
    MR_ASSIGN_OR_RETURN(Tensor * out_boxes, ctx.AllocateOutput(0, Shape({batch, rows, 4})));
    MR_ASSIGN_OR_RETURN(Tensor * out_scores, ctx.AllocateOutput(1, Shape({batch, rows})));
    MR_ASSIGN_OR_RETURN(Tensor * out_classes, ctx.AllocateOutput(2, Shape({batch, rows})));
    MR_ASSIGN_OR_RETURN(Tensor * valid, ctx.AllocateOutput(3, Shape({batch})));
    for (Tensor* t : {out_boxes, out_scores, out_classes}) std::memset(t->raw_data(), 0, t->TotalBytes());
    for (int64_t b = 0; b < batch; ++b) {
      std::vector<Detection> found = Detect(boxes, scores, b, options);
      const int64_t n = std::min<int64_t>(rows, static_cast<int64_t>(found.size()));
      valid->data<int32_t>()[b] = static_cast<int32_t>(n);
      for (int64_t i = 0; i < n; ++i) {
        const Detection& d = found[static_cast<size_t>(i)];
        const float* corners = Corners(boxes, b, d.box, d.cls);
        for (int k = 0; k < 4; ++k) {
          out_boxes->data<float>()[(b * rows + i) * 4 + k] = clip_ ? std::clamp(corners[k], 0.0f, 1.0f) : corners[k];
        }
        out_scores->data<float>()[b * rows + i] = d.score;
        out_classes->data<float>()[b * rows + i] = static_cast<float>(d.cls);
      }
    }
    return absl::OkStatus();
  }

 private:
  static Status Check(const KernelContext& ctx) {
    const Tensor &boxes = ctx.input(0), &scores = ctx.input(1);
    if (boxes.rank() != 4) return InvalidArgument("boxes must be 4-D", boxes.shape().ToString());
    if (scores.rank() != 3) return InvalidArgument("scores must be 3-D", scores.shape().ToString());
    if (boxes.dim(0) != scores.dim(0)) return InvalidArgument("boxes and scores must have same batch size");
    if (boxes.dim(3) != 4) return InvalidArgument("boxes must have 4 columns", boxes.shape().ToString());
    if (boxes.dim(1) != scores.dim(1)) return InvalidArgument("scores has incompatible shape");
    if (boxes.dim(2) != 1 && boxes.dim(2) != scores.dim(2)) {
      return InvalidArgument("third dimension of boxes must be either 1 or equal to the third dimension of scores");
    }
    for (int i = 2; i < 6; ++i) {
      if (ctx.input(i).rank() != 0) {
        return InvalidArgument("input ", i, " must be 0-D, got shape ", ctx.input(i).shape().ToString());
      }
    }
    if (ctx.input(2).scalar<int32_t>() <= 0) return InvalidArgument("max_size_per_class must be positive");
    if (ctx.input(3).scalar<int32_t>() <= 0) return InvalidArgument("max_total_size must be > 0");
    const float threshold = ctx.input(4).scalar<float>();
    if (!(threshold >= 0 && threshold <= 1)) return InvalidArgument("iou_threshold must be in [0, 1]");
    return absl::OkStatus();
  }

  static const float* Corners(const Tensor& boxes, int64_t b, int64_t i, int64_t cls) {
    return boxes.data<float>() + ((b * boxes.dim(1) + i) * boxes.dim(2) + (boxes.dim(2) == 1 ? 0 : cls)) * 4;
  }

  // Of all classes, by falling score.
  static std::vector<Detection> Detect(const Tensor& boxes, const Tensor& scores, int64_t b,
                                       const SuppressionOptions& options) {
    std::vector<Detection> found;
    std::vector<float> of_class(static_cast<size_t>(boxes.dim(1)));
    for (int64_t c = 0; c < scores.dim(2); ++c) {
      for (int64_t i = 0; i < boxes.dim(1); ++i) {
        of_class[static_cast<size_t>(i)] = scores.data<float>()[(b * scores.dim(1) + i) * scores.dim(2) + c];
      }
      const ChosenBoxes chosen = SuppressNonMax(of_class, options, [&](int64_t i, int64_t j) {
        return IntersectionOverUnion(Corners(boxes, b, i, c), Corners(boxes, b, j, c));
      });
      for (size_t k = 0; k < chosen.indices.size(); ++k) {
        found.push_back({chosen.scores[k], static_cast<int32_t>(c), chosen.indices[k]});
      }
    }
    std::stable_sort(found.begin(), found.end(),
                     [](const Detection& x, const Detection& y) { return x.score > y.score; });
    return found;
  }

  bool pad_per_class_ = false, clip_ = true;
};

Status CombinedSuppressionShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape boxes, c.WithRank(0, 4));
  MR_ASSIGN_OR_RETURN(const PartialShape scores, c.WithRank(1, 3));
  std::vector<int64_t> each, total;
  int64_t rows = -1;
  if (c.ConstantInts(3, &total) && total.size() == 1) {
    rows = total[0];
    if (c.node().AttrOr<bool>("pad_per_class", false)) {
      const bool known = c.ConstantInts(2, &each) && each.size() == 1 && scores.dim(2) >= 0;
      rows = known ? std::min(rows, each[0] * scores.dim(2)) : -1;
    }
  }
  c.set_output(0, PartialShape({boxes.dim(0), rows, 4}));
  c.set_output(1, PartialShape({boxes.dim(0), rows}));
  c.set_output(2, PartialShape({boxes.dim(0), rows}));
  c.set_output(3, PartialShape({boxes.dim(0)}));
  return absl::OkStatus();
}

MILLRACE_OP(CombinedNonMaxSuppression)
    .Summary("The best boxes of all classes, each class by itself.")
    .Input("boxes: float")
    .Input("scores: float")
    .Input("max_output_size_per_class: int32")
    .Input("max_total_size: int32")
    .Input("iou_threshold: float")
    .Input("score_threshold: float")
    .Output("nmsed_boxes: float")
    .Output("nmsed_scores: float")
    .Output("nmsed_classes: float")
    .Output("valid_detections: int32")
    .Attr("pad_per_class: bool = false")
    .Attr("clip_boxes: bool = true")
    .Shape(CombinedSuppressionShape)
    .NotDifferentiable();
MILLRACE_KERNEL(CombinedNonMaxSuppression, kCpu, CombinedSuppressionKernel);

}  // namespace
}  // namespace millrace
