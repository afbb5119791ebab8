// Runs a step together with what the hooks add to it. The step is compiled once for each distinct set of hook fetches
// and feeds, so a run with hooks costs little more than one without.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "millrace/train/hooks/session_run_hook.h"

namespace millrace {

// The feeds, fetches and targets of a step that is run repeatedly. Used by one thread at a time.
class HookedSignature {
 public:
  HookedSignature(std::vector<Output> feeds, std::vector<Output> fetches, std::vector<Operation> targets);

  // INVALID_ARGUMENT for an empty output or target, or if there are neither fetches nor targets.
  Status Check() const;

  struct Call {
    ClientSession* session = nullptr;
    const Hooks* hooks = nullptr;
    RunOptions options = {};
    // The caller's; may be null.
    RunMetadata* metadata = nullptr;
    // Set if a hook requested the end of the training.
    bool stop_requested = false;
    // If the caller or a hook fetches this int64 scalar, its value is put into watched_value.
    Endpoint watched = {};
    std::optional<int64_t> watched_value = std::nullopt;
  };
  // `results` receives the caller's fetches. Errors of hooks are returned unchanged. INVALID_ARGUMENT if a tensor is
  // fed twice, by the caller and a hook or by two hooks.
  Status Run(absl::Span<const Tensor> feeds, Call* call, Tensors* results);

  // Drops the compiled steps; call it when the session has changed.
  void Reset() { variants_.clear(); }
  // The number of compiled steps.
  size_t variants() const { return variants_.size(); }

 private:
  // What the hooks of one run add, as pointers into the graph, which are cheap to compare.
  struct Additions {
    std::vector<Endpoint> fetches;
    std::vector<Endpoint> feeds;
    bool operator==(const Additions& other) const;
  };
  struct Variant {
    Additions additions;
    std::unique_ptr<Step> step;
    // For each hook fetch, its index in the step's results.
    std::vector<size_t> places;
    std::optional<size_t> watched;
  };
  StatusOr<Variant*> FindVariant(const Call& call);
  StatusOr<std::unique_ptr<Variant>> Compile(const Call& call) const;

  const std::vector<Output> feeds_;
  const std::vector<Output> fetches_;
  const std::vector<Operation> targets_;
  std::vector<std::unique_ptr<Variant>> variants_;
  // Scratch space of the current run; members so that their memory is reused.
  Additions additions_;
  std::vector<SessionRunArgs> args_;
  std::vector<Tensor> all_feeds_;
  Tensors all_results_;
};

}  // namespace millrace
