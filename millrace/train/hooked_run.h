// One run of the caller's with what the hooks want of it. A step is compiled once for each set of hook fetches that turns up, so that a watched step
// costs little more than a bare one.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "millrace/train/session_run_hook.h"

namespace millrace {

using Hooks = std::vector<std::shared_ptr<SessionRunHook>>;

// What the caller feeds, fetches and runs, again and again. For one thread at a time.
class HookedSignature {
 public:
  HookedSignature(std::vector<Output> feeds, std::vector<Output> fetches, std::vector<Operation> targets);

  // INVALID_ARGUMENT for an empty output or target, or when nothing is asked for.
  Status Check() const;

  struct Call {
    ClientSession* session = nullptr;
    const Hooks* hooks = nullptr;
    RunOptions options = {};
    // Of the caller's; may be null.
    RunMetadata* metadata = nullptr;
    // A hook asked for the end of the training.
    bool stop_requested = false;
    // The value of this tensor, when the run fetched it for whomever.
    Endpoint watched = {};
    std::optional<int64_t> watched_value = std::nullopt;
  };
  // `results` gets what the caller fetches. Errors of hooks are returned as they are; a tensor that both the caller and a hook feed, or two hooks, is INVALID_ARGUMENT.
  Status Run(absl::Span<const Tensor> feeds, Call* call, Tensors* results);

  // Forgets what was compiled: the session is another one.
  void Reset() { variants_.clear(); }
  // How many steps are compiled.
  size_t variants() const { return variants_.size(); }

 private:
  // What the hooks of one run add, as the graph's own pointers: quick to compare.
  struct Additions {
    std::vector<Endpoint> fetches;
    std::vector<Endpoint> feeds;
    bool operator==(const Additions& other) const;
  };
  struct Variant {
    Additions additions;
    std::unique_ptr<Step> step;
    // For each hook fetch its place in the step's results, after the caller's.
    std::vector<size_t> places;
    std::optional<size_t> watched;
  };
  StatusOr<Variant*> FindVariant(const Call& call);
  StatusOr<std::unique_ptr<Variant>> Compile(const Call& call) const;

  const std::vector<Output> feeds_;
  const std::vector<Output> fetches_;
  const std::vector<Operation> targets_;
  std::vector<std::unique_ptr<Variant>> variants_;
  // Of the run that is going on; members, so that their memory is used again.
  Additions additions_;
  std::vector<SessionRunArgs> args_;
  std::vector<Tensor> all_feeds_;
  Tensors all_results_;
};

}  // namespace millrace
