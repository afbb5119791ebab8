// UniformCandidateSampler, LogUniformCandidateSampler, AllCandidateSampler, LearnedUnigramCandidateSampler,
// ThreadUnsafeUnigramCandidateSampler, FixedUnigramCandidateSampler, ComputeAccidentalHits: classes to train against.
#include <cmath>
#include <limits>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "millrace/base/file.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/kernels/elementwise.h"
#include "millrace/ops/random/candidate_sampler.h"
#include "millrace/ops/random/distributions.h"
#include "millrace/ops/random/random_source.h"

namespace millrace::random {
namespace {

class CandidateSamplerKernel : public Kernel {
 public:
  explicit CandidateSamplerKernel(KernelInit& init) : source_(init, SourceKind::kSeedAttrs) {
    init.Attr("num_true", &num_true_);
    init.Attr("num_sampled", &num_sampled_);
    init.Attr("unique", &unique_);
  }

  Status Compute(KernelContext& ctx) override {
    const Tensor& classes = ctx.input(0);
    if (classes.rank() != 2) return InvalidArgument("true_classes must be a matrix");
    if (classes.dim(1) != num_true_) {
      return InvalidArgument("true_classes must have num_true columns, expected: ", classes.dim(1),
                             " was: ", num_true_);
    }
    MR_RETURN_IF_ERROR(Prepare(ctx));
    if (unique_ && num_sampled_ > sampler_->range()) {
      return InvalidArgument("Sampler's range is too small: ", num_sampled_, " different classes of ",
                             sampler_->range());
    }
    MR_RETURN_IF_ERROR(sampler_->CheckClasses(classes.flat<int64_t>()));
    MR_ASSIGN_OR_RETURN(Tensor * sampled, ctx.AllocateOutput(0, Shape({num_sampled_})));
    MR_ASSIGN_OR_RETURN(Tensor * true_counts, ctx.AllocateOutput(1, classes.shape()));
    MR_ASSIGN_OR_RETURN(Tensor * sampled_counts, ctx.AllocateOutput(2, Shape({num_sampled_})));
    // As many random numbers as TensorFlow reserves per sample.
    MR_ASSIGN_OR_RETURN(const Philox stream, source_.Take(ctx, 0, static_cast<uint64_t>(num_sampled_) * 2048 / 4));
    return sampler_->SampleBatch(stream, unique_, sampled->flat<int64_t>(), sampled_counts->flat<float>(),
                                 classes.flat<int64_t>(), true_counts->flat<float>());
  }

 protected:
  // Called before the first use; reads files if needed.
  virtual Status Prepare(KernelContext&) { return absl::OkStatus(); }

  int64_t num_true_ = 0, num_sampled_ = 0;
  bool unique_ = false;
  std::unique_ptr<RangeSampler> sampler_;

 private:
  RandomSource source_;
};

template <std::unique_ptr<RangeSampler> (*make)(int64_t)>
class SamplerOf : public CandidateSamplerKernel {
 public:
  explicit SamplerOf(KernelInit& init) : CandidateSamplerKernel(init) {
    int64_t range = 0;
    init.Attr("range_max", &range);
    if (!init.status().ok()) return;
    if (range > kMaxWeightedRange && make != &NewUniformSampler && make != &NewLogUniformSampler) {
      init.Fail(InvalidArgument("range_max is too large for a table: ", range));
      return;
    }
    sampler_ = make(range);
  }
};

class AllSamplerKernel : public CandidateSamplerKernel {
 public:
  explicit AllSamplerKernel(KernelInit& init) : CandidateSamplerKernel(init) { sampler_ = NewAllSampler(num_sampled_); }
};

class FixedUnigramKernel : public CandidateSamplerKernel {
 public:
  explicit FixedUnigramKernel(KernelInit& init) : CandidateSamplerKernel(init) {
    float distortion = 1;
    init.Attr("range_max", &options_.range);
    init.Attr("vocab_file", &file_);
    init.Attr("distortion", &distortion);
    init.Attr("num_reserved_ids", &options_.reserved);
    init.Attr("num_shards", &options_.shards);
    init.Attr("shard", &options_.shard);
    init.Attr("unigrams", &unigrams_);
    options_.distortion = distortion;
    if (!init.status().ok()) return;
    if (options_.shard >= options_.shards) init.Fail(InvalidArgument("shard must be below num_shards"));
    if (options_.range > kMaxWeightedRange)
      init.Fail(InvalidArgument("range_max is too large for a table: ", options_.range));
    if (options_.reserved < 0 || options_.reserved > options_.range) {
      init.Fail(InvalidArgument("num_reserved_ids must be in [0, range_max]: ", options_.reserved));
    }
    if (file_.empty() == unigrams_.empty()) {
      init.Fail(InvalidArgument("Must provide exactly one of vocab_file and unigrams."));
    }
  }

 private:
  Status Prepare(KernelContext& ctx) override {
    MutexLock lock(&mu_);
    if (sampler_ != nullptr) return absl::OkStatus();
    std::vector<float> weights = unigrams_;
    if (!file_.empty()) {
      if (ctx.step().files == nullptr) return FailedPrecondition("there are no files here to read ", file_, " from");
      MR_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(ctx.step().files, file_));
      // The last column of each line is the count.
      for (absl::string_view line : absl::StrSplit(text, '\n', absl::SkipWhitespace())) {
        const std::vector<absl::string_view> columns = absl::StrSplit(line, ',');
        float weight = 0;
        if (!absl::SimpleAtof(columns.back(), &weight))
          return InvalidArgument("Wrong vocabulary format at line: ", line);
        weights.push_back(weight);
      }
    }
    MR_ASSIGN_OR_RETURN(sampler_, NewFixedUnigramSampler(options_, weights));
    return absl::OkStatus();
  }

  FixedUnigramOptions options_;
  std::string file_;
  std::vector<float> unigrams_;
  Mutex mu_;
};

// Which sampled classes are among the true ones, row by row.
class ComputeAccidentalHitsKernel : public Kernel {
 public:
  explicit ComputeAccidentalHitsKernel(KernelInit& init) { init.Attr("num_true", &num_true_); }

  Status Compute(KernelContext& ctx) override {
    const Tensor &classes = ctx.input(0), &sampled = ctx.input(1);
    if (classes.rank() != 2 || classes.dim(1) != num_true_) {
      return InvalidArgument("true_candidates must be a batch_size * num_true matrix");
    }
    if (sampled.rank() != 1) {
      return InvalidArgument("sampled_candidates must be a vector, which is typically an output from CandidateSampler");
    }
    std::unordered_map<int64_t, int64_t> place;
    for (int64_t i = 0; i < sampled.dim(0); ++i) place[sampled.data<int64_t>()[i]] = i;
    std::vector<std::pair<int32_t, int64_t>> hits;
    for (int64_t i = 0; i < classes.num_elements(); ++i) {
      const auto at = place.find(classes.data<int64_t>()[i]);
      if (at != place.end()) hits.emplace_back(static_cast<int32_t>(i / num_true_), at->second);
    }
    const Shape shape({static_cast<int64_t>(hits.size())});
    MR_ASSIGN_OR_RETURN(Tensor * indices, ctx.AllocateOutput(0, shape));
    MR_ASSIGN_OR_RETURN(Tensor * ids, ctx.AllocateOutput(1, shape));
    MR_ASSIGN_OR_RETURN(Tensor * weights, ctx.AllocateOutput(2, shape));
    for (size_t i = 0; i < hits.size(); ++i) {
      indices->data<int32_t>()[i] = hits[i].first;
      ids->data<int64_t>()[i] = hits[i].second;
      // So small that softmax gives 0.
      weights->data<float>()[i] = -std::numeric_limits<float>::max();
    }
    return absl::OkStatus();
  }

 private:
  int64_t num_true_ = 0;
};

Status SamplerShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(PartialShape classes, c.WithRank(0, 2));
  MR_ASSIGN_OR_RETURN(const int64_t sampled, c.Attr<int64_t>("num_sampled"));
  MR_ASSIGN_OR_RETURN(const int64_t num_true, c.Attr<int64_t>("num_true"));
  if (num_true < 1) return InvalidArgument("num_true must be >= 1");
  classes.set_dim(1, num_true);
  c.set_output(0, PartialShape({sampled}));
  c.set_output(1, std::move(classes));
  c.set_output(2, PartialShape({sampled}));
  return absl::OkStatus();
}

Status AccidentalHitsShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(const int64_t num_true, c.Attr<int64_t>("num_true"));
  MR_ASSIGN_OR_RETURN(const PartialShape classes, c.WithRank(0, 2));
  if (classes.dim(1) >= 0 && classes.dim(1) != num_true) {
    return InvalidArgument("Dimension must be ", num_true, " but is ", classes.dim(1));
  }
  for (int i = 0; i < 3; ++i) c.set_output(i, PartialShape({-1}));
  return absl::OkStatus();
}

}  // namespace

#define MR_SAMPLER(name)                       \
  MILLRACE_OP(name)                            \
      .Input("true_classes: int64")            \
      .Output("sampled_candidates: int64")     \
      .Output("true_expected_count: float")    \
      .Output("sampled_expected_count: float") \
      .Attr("num_true: int >= 1")              \
      .Attr("num_sampled: int >= 1")           \
      .Attr("unique: bool")

MR_SAMPLER(UniformCandidateSampler)
    .Attr("range_max: int >= 1")
    .Attr("seed: int = 0")
    .Attr("seed2: int = 0")
    .Stateful()
    .Shape(SamplerShape)
    .NotDifferentiable()
    .Summary("Samples classes uniformly, with their expected counts.");
MR_SAMPLER(LogUniformCandidateSampler)
    .Attr("range_max: int >= 1")
    .Attr("seed: int = 0")
    .Attr("seed2: int = 0")
    .Stateful()
    .Shape(SamplerShape)
    .NotDifferentiable()
    .Summary("Samples classes by Zipf's law (log-uniform), with their expected counts.");
MR_SAMPLER(LearnedUnigramCandidateSampler)
    .Attr("range_max: int >= 1")
    .Attr("seed: int = 0")
    .Attr("seed2: int = 0")
    .Stateful()
    .Shape(SamplerShape)
    .NotDifferentiable()
    .Summary("Samples classes by their observed frequencies, with their expected counts.");
MR_SAMPLER(ThreadUnsafeUnigramCandidateSampler)
    .Attr("range_max: int >= 1")
    .Attr("seed: int = 0")
    .Attr("seed2: int = 0")
    .Stateful()
    .Shape(SamplerShape)
    .NotDifferentiable()
    .Summary("Samples classes by their observed frequencies, with their expected counts.");
MR_SAMPLER(AllCandidateSampler)
    .Attr("seed: int = 0")
    .Attr("seed2: int = 0")
    .Stateful()
    .Shape(SamplerShape)
    .NotDifferentiable()
    .Summary("All classes, each with an expected count of one.");
MR_SAMPLER(FixedUnigramCandidateSampler)
    .Attr("range_max: int >= 1")
    .Attr("vocab_file: string = ''")
    .Attr("distortion: float = 1.0")
    .Attr("num_reserved_ids: int = 0")
    .Attr("num_shards: int >= 1 = 1")
    .Attr("shard: int >= 0 = 0")
    .Attr("unigrams: list(float) = []")
    .Attr("seed: int = 0")
    .Attr("seed2: int = 0")
    .Stateful()
    .Shape(SamplerShape)
    .NotDifferentiable()
    .Summary("Samples classes by given frequencies, with their expected counts.");
MILLRACE_OP(ComputeAccidentalHits)
    .Input("true_classes: int64")
    .Input("sampled_candidates: int64")
    .Output("indices: int32")
    .Output("ids: int64")
    .Output("weights: float")
    .Attr("num_true: int")
    .Attr("seed: int = 0")
    .Attr("seed2: int = 0")
    .Shape(AccidentalHitsShape)
    .NotDifferentiable()
    .Summary("The positions where sampled classes are true classes.");
#undef MR_SAMPLER

MILLRACE_KERNEL(UniformCandidateSampler, kCpu, SamplerOf<NewUniformSampler>);
MILLRACE_KERNEL(LogUniformCandidateSampler, kCpu, SamplerOf<NewLogUniformSampler>);
MILLRACE_KERNEL(LearnedUnigramCandidateSampler, kCpu, SamplerOf<NewUnigramSampler>);
MILLRACE_KERNEL(ThreadUnsafeUnigramCandidateSampler, kCpu, SamplerOf<NewUnigramSampler>);
MILLRACE_KERNEL(AllCandidateSampler, kCpu, AllSamplerKernel);
MILLRACE_KERNEL(FixedUnigramCandidateSampler, kCpu, FixedUnigramKernel);
MILLRACE_KERNEL(ComputeAccidentalHits, kCpu, ComputeAccidentalHitsKernel);

}  // namespace millrace::random
