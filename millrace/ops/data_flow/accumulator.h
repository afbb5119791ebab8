// Conditional accumulators: gather the gradients of several workers for one update and drop stale ones.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "millrace/base/mutex.h"
#include "millrace/ops/data_flow/gradient_sum.h"
#include "millrace/ops/data_flow/shard_gradients.h"
#include "millrace/runtime/blocked_ops.h"

namespace millrace {

// Has a global step. A gradient computed at an earlier step is stale and is dropped without an error; taking the
// accumulated gradient advances the global step by one. Thread-safe.
//
// With shards (fixed order) it counts logical shards instead of gradients, each once for each step, and adds them in
// the order of the shard tree. Gradients of later steps are kept for these; the first one that comes decides at which
// step a new accumulator begins.
class Accumulator : public Resource {
 public:
  static constexpr char kTypeName[] = "tensorflow::ConditionalAccumulatorBase";

  struct Options {
    std::string name;
    DType dtype = DType::kInvalid;
    PartialShape shape;
    bool sparse = false;
    bool mean = true;  // if false, the sum
    int shards = 0;    // if positive, fixed order
  };
  using TakeDone = absl::AnyInvocable<void(StatusOr<std::vector<Tensor>>)>;

  explicit Accumulator(Options options);

  const Options& options() const { return options_; }

  Status Apply(const CallingOp& op, int64_t local_step, const GradientPart& gradient);
  // Calls `done` with the accumulated gradient once at least `num_required` gradients have arrived since the last take.
  void Take(const CallingOp& op, int64_t num_required, TakeDone done);
  // Gradients of earlier steps than this are stale.
  void SetGlobalStep(const CallingOp& op, int64_t step);
  // For a training that begins anew with what others have left here: forgets all gradients, begins an epoch and sets
  // the global step.
  void BeginAnew(const CallingOp& op, int64_t step);

  // Whether it has been given a global step since it was made.
  bool has_begun() const;
  int64_t num_accumulated() const;
  // The number of gradients that were dropped, because they were stale or, with shards, there already.
  int64_t num_dropped() const;
  std::string DebugString() const override;
  uint64_t epoch() const override;

 private:
  void Cancel(int64_t id);
  // True if the gradient was added.
  StatusOr<bool> Add(int64_t local_step, const GradientPart& gradient) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  int64_t Count() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Describes a waiting take for the list of waits.
  void DescribeTake(int64_t num_required, Wait* wait) const;

  const Options options_;
  const std::string label_;  // "accumulator 'name'"

  mutable Mutex mu_;
  int64_t global_step_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t count_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t dropped_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t epoch_ ABSL_GUARDED_BY(mu_) = NewEpoch();
  const std::unique_ptr<GradientSum> sum_ ABSL_PT_GUARDED_BY(mu_);
  const std::unique_ptr<ShardGradients> shards_ ABSL_PT_GUARDED_BY(mu_);  // null without fixed order
  bool is_new_ ABSL_GUARDED_BY(mu_) = true;                               // nobody has told it a step
  WaitingLine takes_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace
