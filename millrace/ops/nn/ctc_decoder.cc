// CTCGreedyDecoder and CTCBeamSearchDecoder: the most likely labels by connectionist temporal classification.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/nn/ctc_input.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

// Each path is a sparse matrix: indices, values, shape. The last output is the log-probability of the paths.
Status CtcDecoderShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(const PartialShape inputs, c.WithRank(0, 3));
  const int paths = (c.num_outputs() - 1) / 3;
  for (int i = 0; i < paths; ++i) {
    c.set_output(i, PartialShape({-1, 2}));
    c.set_output(paths + i, PartialShape({-1}));
    c.set_output(2 * paths + i, PartialShape({2}));
  }
  c.set_output(3 * paths, PartialShape({inputs.dim(1), paths}));
  return absl::OkStatus();
}

MILLRACE_OP(CTCGreedyDecoder)
    .Summary("The labels of the most likely class of each step, without blanks.")
    .Input("inputs: T")
    .Input("sequence_length: int32")
    .Output("decoded_indices: int64")
    .Output("decoded_values: int64")
    .Output("decoded_shape: int64")
    .Output("log_probability: T")
    .Attr("merge_repeated: bool = false")
    .Attr("blank_index: int = -1")
    .Attr("T: {float, double} = float")
    .Shape(CtcDecoderShape)
    .NotDifferentiable();

MILLRACE_OP(CTCBeamSearchDecoder)
    .Summary("The most likely labels, by a search that keeps the best beginnings.")
    .Input("inputs: T")
    .Input("sequence_length: int32")
    .Output("decoded_indices: top_paths * int64")
    .Output("decoded_values: top_paths * int64")
    .Output("decoded_shape: top_paths * int64")
    .Output("log_probability: T")
    .Attr("beam_width: int >= 1")
    .Attr("top_paths: int >= 1")
    .Attr("merge_repeated: bool = true")
    .Attr("T: {float, double} = float")
    .Shape(CtcDecoderShape)
    .NotDifferentiable();

using LabelSequence = std::vector<int64_t>;

struct DecodedPath {
  LabelSequence labels;
  double score = 0;
};

// A beginning of a label sequence: a node of a tree whose edges are labels.
struct Prefix {
  // Log-probabilities of the paths that give it: all, those that end in a blank, and the others.
  struct Scores {
    double total = kLogZero, blank = kLogZero, label = kLogZero;
  };
  Prefix* parent = nullptr;
  int64_t label = -1;
  Scores before, now;
  std::vector<std::unique_ptr<Prefix>> children;  // one for each label, or none yet

  bool Kept() const { return now.total != kLogZero; }
};

class BeamSearch {
 public:
  BeamSearch(int64_t width, int64_t classes) : width_(width), classes_(classes) {
    root_.now = {.total = 0, .blank = 0, .label = kLogZero};
    beam_.push_back(&root_);
  }

  // `scores` are the logarithms of the classes' probabilities in the next step; the last class is the blank.
  void Step(const std::vector<double>& scores) {
    const std::vector<Prefix*> before = std::move(beam_);
    beam_.clear();
    for (Prefix* p : before) p->before = p->now;
    for (Prefix* p : before) {
      if (p->parent != nullptr) {
        if (p->parent->Kept()) {
          // The same label once more needs a blank in between.
          const Prefix::Scores& from = p->parent->before;
          p->now.label = LogSumExp(p->now.label, p->label == p->parent->label ? from.blank : from.total);
        }
        p->now.label += scores[p->label];
      }
      p->now.blank = p->before.total + scores[classes_ - 1];
      p->now.total = LogSumExp(p->now.blank, p->now.label);
      Insert(p);
    }
    for (Prefix* p : before) {
      if (!MayEnter(p->before)) continue;
      if (p->children.empty()) AddChildren(p);
      for (const std::unique_ptr<Prefix>& child : p->children) {
        if (child->Kept()) continue;
        const double from = child->label == p->label ? p->before.blank : p->before.total;
        child->now.blank = kLogZero;
        child->now.label = child->now.total = scores[child->label] + from;
        if (MayEnter(child->now)) {
          Insert(child.get());
        } else {
          child->before = child->now = {};
        }
      }
    }
  }

  StatusOr<std::vector<DecodedPath>> Best(int64_t count, bool merge_repeated) const {
    if (count > static_cast<int64_t>(beam_.size())) {
      return InvalidArgument("Less leaves in the beam search than requested: ", beam_.size(), " of ", count);
    }
    std::vector<DecodedPath> paths;
    for (int64_t i = 0; i < count; ++i) {
      DecodedPath path{.labels = {}, .score = beam_[i]->now.total};
      int64_t previous = -1;
      for (const Prefix* p = beam_[i]; p->parent != nullptr; p = p->parent) {
        if (!merge_repeated || p->label != previous) path.labels.push_back(p->label);
        previous = p->label;
      }
      std::reverse(path.labels.begin(), path.labels.end());
      paths.push_back(std::move(path));
    }
    return paths;
  }

 private:
  bool Full() const { return static_cast<int64_t>(beam_.size()) == width_; }
  bool MayEnter(const Prefix::Scores& s) const {
    return s.total > kLogZero && (!Full() || s.total > beam_.back()->now.total);
  }
  // Keeps the beam sorted, best first; the worst leaves a full one.
  void Insert(Prefix* p) {
    const auto at = std::upper_bound(beam_.begin(), beam_.end(), p,
                                     [](const Prefix* a, const Prefix* b) { return a->now.total > b->now.total; });
    beam_.insert(at, p);
    if (static_cast<int64_t>(beam_.size()) <= width_) return;
    beam_.back()->now = {};
    beam_.pop_back();
  }
  void AddChildren(Prefix* p) const {
    for (int64_t label = 0; label + 1 < classes_; ++label) {
      p->children.push_back(std::make_unique<Prefix>());
      p->children.back()->parent = p;
      p->children.back()->label = label;
    }
  }

  const int64_t width_, classes_;
  Prefix root_;
  std::vector<Prefix*> beam_;
};

// Decodes every sequence into the same number of paths and writes them as sparse matrices.
class CtcDecoderKernel : public Kernel {
 public:
  Status Compute(KernelContext& ctx) final {
    MR_ASSIGN_OR_RETURN(const CtcInput in, CtcInput::Read(ctx.input(0), ctx.input(1)));
    std::vector<std::vector<DecodedPath>> decoded(in.batch);  // by sequence
    Status status;
    DispatchType(Types<float, double>{}, ctx.input(0).dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      for (int64_t b = 0; b < in.batch && status.ok(); ++b) {
        const auto logits = [&](int64_t t) {
          const T* row = ctx.input(0).data<T>() + in.Row(t, b);
          return std::vector<double>(row, row + in.classes);
        };
        StatusOr<std::vector<DecodedPath>> paths = Decode(in, b, logits);
        status = paths.status();
        if (paths.ok()) decoded[b] = *std::move(paths);
      }
    });
    return status.ok() ? Write(ctx, in, decoded) : status;
  }

 protected:
  using Logits = absl::FunctionRef<std::vector<double>(int64_t t)>;
  virtual StatusOr<std::vector<DecodedPath>> Decode(const CtcInput& in, int64_t b, Logits logits) const = 0;

 private:
  static Status Write(KernelContext& ctx, const CtcInput& in, const std::vector<std::vector<DecodedPath>>& decoded) {
    const int paths = (ctx.num_outputs() - 1) / 3;
    for (int p = 0; p < paths; ++p) {
      int64_t count = 0, longest = 0;
      for (const auto& sequence : decoded) {
        const auto size = static_cast<int64_t>(sequence[p].labels.size());
        count += size;
        longest = std::max(longest, size);
      }
      MR_ASSIGN_OR_RETURN(Tensor * indices, ctx.AllocateOutput(p, Shape({count, 2})));
      MR_ASSIGN_OR_RETURN(Tensor * values, ctx.AllocateOutput(paths + p, Shape({count})));
      MR_ASSIGN_OR_RETURN(Tensor * shape, ctx.AllocateOutput(2 * paths + p, Shape({2})));
      int64_t *index = indices->data<int64_t>(), *value = values->data<int64_t>();
      for (int64_t b = 0; b < in.batch; ++b) {
        const LabelSequence& labels = decoded[b][p].labels;
        for (size_t i = 0; i < labels.size(); ++i) {
          *index++ = b;
          *index++ = static_cast<int64_t>(i);
          *value++ = labels[i];
        }
      }
      shape->data<int64_t>()[0] = in.batch;
      shape->data<int64_t>()[1] = longest;
    }
    MR_ASSIGN_OR_RETURN(Tensor * scores, ctx.AllocateOutput(3 * paths, Shape({in.batch, paths})));
    DispatchType(Types<float, double>{}, scores->dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      for (int64_t b = 0; b < in.batch; ++b) {
        for (int p = 0; p < paths; ++p) scores->data<T>()[b * paths + p] = static_cast<T>(decoded[b][p].score);
      }
    });
    return absl::OkStatus();
  }
};

class CtcGreedyDecoderKernel : public CtcDecoderKernel {
 public:
  explicit CtcGreedyDecoderKernel(KernelInit& init) {
    init.Attr("merge_repeated", &merge_);
    init.Attr("blank_index", &blank_);
  }

 protected:
  StatusOr<std::vector<DecodedPath>> Decode(const CtcInput& in, int64_t b, Logits logits) const override {
    const int64_t blank = blank_ < 0 ? in.classes + blank_ : blank_;
    if (blank < 0 || blank >= in.classes) {
      return InvalidArgument("blank_index expected to be between ", -in.classes, " and ", in.classes - 1, " but was ",
                             blank_);
    }
    DecodedPath path;
    int64_t previous = -1;
    for (int64_t t = 0; t < in.lengths[b]; ++t) {
      const std::vector<double> row = logits(t);
      const int64_t best = std::max_element(row.begin(), row.end()) - row.begin();
      path.score -= row[best];
      if (best != blank && !(merge_ && best == previous)) path.labels.push_back(best);
      previous = best;
    }
    return std::vector<DecodedPath>{std::move(path)};
  }

 private:
  bool merge_ = false;
  int64_t blank_ = -1;
};

class CtcBeamSearchDecoderKernel : public CtcDecoderKernel {
 public:
  explicit CtcBeamSearchDecoderKernel(KernelInit& init) {
    init.Attr("beam_width", &width_);
    init.Attr("top_paths", &paths_);
    init.Attr("merge_repeated", &merge_);
    if (paths_ > width_)
      init.Fail(InvalidArgument("top_paths is ", paths_, " and beam_width ", width_,
                                ": requested more paths than the beam width."));
  }

 protected:
  StatusOr<std::vector<DecodedPath>> Decode(const CtcInput& in, int64_t b, Logits logits) const override {
    BeamSearch search(width_, in.classes);
    for (int64_t t = 0; t < in.lengths[b]; ++t) {
      std::vector<double> scores = logits(t);
      const double largest = *std::max_element(scores.begin(), scores.end());
      double sum = 0;
      for (const double s : scores) sum += std::exp(s - largest);
      for (double& s : scores) s -= largest + std::log(sum);
      search.Step(scores);
    }
    return search.Best(paths_, merge_);
  }

 private:
  int64_t width_ = 1, paths_ = 1;
  bool merge_ = true;
};

MILLRACE_KERNEL(CTCGreedyDecoder, kCpu, CtcGreedyDecoderKernel);
MILLRACE_KERNEL(CTCBeamSearchDecoder, kCpu, CtcBeamSearchDecoderKernel);

}  // namespace
}  // namespace millrace
