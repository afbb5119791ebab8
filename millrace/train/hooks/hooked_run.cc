#include "millrace/train/hooks/hooked_run.h"

#include <algorithm>
#include <utility>

namespace millrace {
namespace {

// Limits the compiled steps, for hooks that ask for something else in every run.
constexpr size_t kMostVariants = 64;

bool Same(const std::vector<Endpoint>& a, const std::vector<Endpoint>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const Endpoint& x, const Endpoint& y) { return x.node == y.node && x.index == y.index; });
}

}  // namespace

bool HookedSignature::Additions::operator==(const Additions& other) const {
  return Same(fetches, other.fetches) && Same(feeds, other.feeds);
}

HookedSignature::HookedSignature(std::vector<Output> feeds, std::vector<Output> fetches, std::vector<Operation> targets)
    : feeds_(std::move(feeds)), fetches_(std::move(fetches)), targets_(std::move(targets)) {}

Status HookedSignature::Check() const {
  for (size_t i = 0; i < feeds_.size(); ++i) {
    if (feeds_[i].empty()) return InvalidArgument("feed ", i, " is for an empty Output");
  }
  for (size_t i = 0; i < fetches_.size(); ++i) {
    if (fetches_[i].empty()) return InvalidArgument("fetch ", i, " is an empty Output");
  }
  for (size_t i = 0; i < targets_.size(); ++i) {
    if (targets_[i].empty()) return InvalidArgument("target ", i, " is an empty Operation");
  }
  if (fetches_.empty() && targets_.empty()) return InvalidArgument("a run needs fetches or targets");
  return absl::OkStatus();
}

StatusOr<std::unique_ptr<HookedSignature::Variant>> HookedSignature::Compile(const Call& call) const {
  auto variant = std::make_unique<Variant>();
  variant->additions = additions_;
  std::vector<Output> feeds = feeds_, fetches = fetches_;
  const auto fed_already = [&](const Endpoint& e) {
    return std::any_of(feeds.begin(), feeds.end(),
                       [&](const Output& o) { return o.node() == e.node && o.index() == e.index; });
  };
  for (const SessionRunArgs& args : args_) {
    for (const auto& [output, value] : args.feeds) {
      if (fed_already(output.endpoint()))
        return InvalidArgument("tensor ", output.name(), " is fed by a hook and by the caller or another hook");
      feeds.push_back(output);
    }
    for (const Output& output : args.fetches) {
      if (output.empty()) return InvalidArgument("a hook fetches an empty Output");
      const auto same = std::find_if(fetches.begin(), fetches.end(), [&](const Output& o) {
        return o.node() == output.node() && o.index() == output.index();
      });
      variant->places.push_back(same - fetches.begin());
      if (same == fetches.end()) fetches.push_back(output);
    }
  }
  for (size_t i = 0; i < fetches.size(); ++i) {
    if (call.watched.node != nullptr && fetches[i].node() == call.watched.node &&
        fetches[i].index() == call.watched.index)
      variant->watched = i;
  }
  MR_ASSIGN_OR_RETURN(Step step, call.session->MakeStep(feeds, fetches, targets_));
  variant->step = std::make_unique<Step>(std::move(step));
  return variant;
}

StatusOr<HookedSignature::Variant*> HookedSignature::FindVariant(const Call& call) {
  for (const auto& variant : variants_) {
    if (variant->additions == additions_) return variant.get();
  }
  if (variants_.size() >= kMostVariants) variants_.erase(variants_.begin() + 1, variants_.end());
  MR_ASSIGN_OR_RETURN(std::unique_ptr<Variant> variant, Compile(call));
  variants_.push_back(std::move(variant));
  return variants_.back().get();
}

Status HookedSignature::Run(absl::Span<const Tensor> feeds, Call* call, Tensors* results) {
  if (feeds.size() != feeds_.size())
    return InvalidArgument("the step takes ", feeds_.size(), " feeds; it was given ", feeds.size());
  SessionRunContext context{.session = call->session, .fetches = &fetches_};
  additions_.fetches.clear();
  additions_.feeds.clear();
  args_.clear();
  all_feeds_.assign(feeds.begin(), feeds.end());
  const bool callers_trace = call->options.trace;
  RunOptions options = call->options;
  for (const auto& hook : *call->hooks) {
    MR_ASSIGN_OR_RETURN(SessionRunArgs args, hook->BeforeRun(&context));
    for (const Output& fetch : args.fetches) additions_.fetches.push_back(fetch.endpoint());
    for (const auto& [output, value] : args.feeds) {
      additions_.feeds.push_back(output.endpoint());
      all_feeds_.push_back(value);
    }
    options.trace |= args.trace;
    args_.push_back(std::move(args));
  }
  MR_ASSIGN_OR_RETURN(Variant * variant, FindVariant(*call));
  RunMetadata own_metadata;
  RunMetadata* metadata = call->metadata != nullptr ? call->metadata : options.trace ? &own_metadata : nullptr;
  MR_RETURN_IF_ERROR(variant->step->callable().Run(all_feeds_, &all_results_, options, metadata));
  all_feeds_.clear();  // do not keep the caller's tensors alive
  if (variant->watched) call->watched_value = all_results_[*variant->watched].scalar<int64_t>();

  size_t place = 0;
  for (size_t i = 0; i < call->hooks->size(); ++i) {
    SessionRunValues values{.results = {}, .metadata = options.trace ? metadata : nullptr};
    for (size_t f = 0; f < args_[i].fetches.size(); ++f)
      values.results.push_back(all_results_[variant->places[place++]]);
    MR_RETURN_IF_ERROR((*call->hooks)[i]->AfterRun(&context, values));
  }
  if (call->metadata != nullptr && !callers_trace) call->metadata->clear_step_stats();
  results->assign(all_results_.begin(), all_results_.begin() + static_cast<ptrdiff_t>(fetches_.size()));
  all_results_.clear();
  call->stop_requested = context.stop_requested;
  return absl::OkStatus();
}

}  // namespace millrace
