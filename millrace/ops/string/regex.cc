// RegexFullMatch and RegexReplace, and their static variants, whose pattern is an attr.
#include <re2/re2.h>

#include <memory>

#include "millrace/base/mutex.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/string/string_input.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

using Regex = std::shared_ptr<const RE2>;

StatusOr<Regex> Compile(const std::string& pattern) {
  auto regex = std::make_shared<const RE2>(pattern, RE2::Quiet);
  if (!regex->ok()) return InvalidArgument("Invalid pattern: ", pattern, ", error: ", regex->error());
  return regex;
}

// Caches the last compiled pattern: consecutive steps usually use the same one.
class LastRegex {
 public:
  StatusOr<Regex> Get(const std::string& pattern) {
    {
      MutexLock lock(&mutex_);
      if (last_ != nullptr && last_->pattern() == pattern) return last_;
    }
    MR_ASSIGN_OR_RETURN(Regex regex, Compile(pattern));
    MutexLock lock(&mutex_);
    last_ = regex;
    return regex;
  }

 private:
  Mutex mutex_;
  Regex last_ ABSL_GUARDED_BY(mutex_);
};

Status MatchAll(KernelContext& ctx, const RE2& regex) {
  const Tensor& input = ctx.input(0);
  MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateOutput(0, input.shape()));
  const std::string* from = input.data<std::string>();
  bool* to = out->data<bool>();
  ctx.ParallelFor(input.num_elements(), kStringGrain / 4, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) to[i] = RE2::FullMatch(from[i], regex);
  });
  return absl::OkStatus();
}

Status ReplaceAll(KernelContext& ctx, const RE2& regex, const std::string& rewrite, bool global) {
  // A rewrite that refers to a missing group replaces nothing, as in TensorFlow.
  return MapStrings(ctx, [&](const std::string& from) {
    std::string text = from;
    if (global) {
      RE2::GlobalReplace(&text, regex, rewrite);
    } else {
      RE2::Replace(&text, regex, rewrite);
    }
    return text;
  });
}

class RegexFullMatchKernel : public Kernel {
 public:
  explicit RegexFullMatchKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const std::string* pattern, ScalarString(ctx, 1, "Pattern"));
    MR_ASSIGN_OR_RETURN(const Regex regex, last_.Get(*pattern));
    return MatchAll(ctx, *regex);
  }

 private:
  LastRegex last_;
};

class StaticRegexFullMatchKernel : public Kernel {
 public:
  explicit StaticRegexFullMatchKernel(KernelInit& init) {
    std::string pattern;
    init.Attr("pattern", &pattern);
    StatusOr<Regex> regex = Compile(pattern);
    if (regex.ok()) {
      regex_ = *std::move(regex);
    } else {
      init.Fail(regex.status());
    }
  }
  Status Compute(KernelContext& ctx) override { return MatchAll(ctx, *regex_); }

 private:
  Regex regex_;
};

class RegexReplaceKernel : public Kernel {
 public:
  explicit RegexReplaceKernel(KernelInit& init) { init.Attr("replace_global", &global_); }
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(const std::string* pattern, ScalarString(ctx, 1, "Pattern"));
    MR_ASSIGN_OR_RETURN(const std::string* rewrite, ScalarString(ctx, 2, "Rewrite"));
    MR_ASSIGN_OR_RETURN(const Regex regex, last_.Get(*pattern));
    return ReplaceAll(ctx, *regex, *rewrite, global_);
  }

 private:
  bool global_ = true;
  LastRegex last_;
};

class StaticRegexReplaceKernel : public Kernel {
 public:
  explicit StaticRegexReplaceKernel(KernelInit& init) {
    std::string pattern;
    init.Attr("pattern", &pattern);
    init.Attr("rewrite", &rewrite_);
    init.Attr("replace_global", &global_);
    StatusOr<Regex> regex = Compile(pattern);
    if (regex.ok()) {
      regex_ = *std::move(regex);
    } else {
      init.Fail(regex.status());
    }
  }
  Status Compute(KernelContext& ctx) override { return ReplaceAll(ctx, *regex_, rewrite_, global_); }

 private:
  Regex regex_;
  std::string rewrite_;
  bool global_ = true;
};

Status RegexShape(ShapeContext& c) {
  for (int i = 1; i < c.num_inputs(); ++i) MR_RETURN_IF_ERROR(c.WithRank(i, 0).status());
  c.set_output(0, c.input(0));
  return absl::OkStatus();
}

MILLRACE_OP(RegexFullMatch)
    .Input("input: string")
    .Input("pattern: string")
    .Output("output: bool")
    .Shape(RegexShape)
    .NotDifferentiable()
    .Summary("True for strings that fully match an RE2 pattern.");
MILLRACE_OP(StaticRegexFullMatch)
    .Input("input: string")
    .Output("output: bool")
    .Attr("pattern: string")
    .Shape(RegexShape)
    .NotDifferentiable()
    .Summary("True for strings that fully match an RE2 pattern.");
MILLRACE_OP(RegexReplace)
    .Input("input: string")
    .Input("pattern: string")
    .Input("rewrite: string")
    .Output("output: string")
    .Attr("replace_global: bool = true")
    .Shape(RegexShape)
    .NotDifferentiable()
    .Summary("Replaces matches of an RE2 pattern, all or only the first.");
MILLRACE_OP(StaticRegexReplace)
    .Input("input: string")
    .Output("output: string")
    .Attr("pattern: string")
    .Attr("rewrite: string")
    .Attr("replace_global: bool = true")
    .Shape(RegexShape)
    .NotDifferentiable()
    .Summary("Replaces matches of an RE2 pattern, all or only the first.");
MILLRACE_KERNEL(RegexFullMatch, kCpu, RegexFullMatchKernel);
MILLRACE_KERNEL(StaticRegexFullMatch, kCpu, StaticRegexFullMatchKernel);
MILLRACE_KERNEL(RegexReplace, kCpu, RegexReplaceKernel);
MILLRACE_KERNEL(StaticRegexReplace, kCpu, StaticRegexReplaceKernel);

}  // namespace
}  // namespace millrace
