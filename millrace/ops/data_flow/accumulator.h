// Conditional accumulators: gather the gradients of several workers for one update and drop stale ones.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "millrace/base/mutex.h"
#include "millrace/ops/data_flow/gradient_sum.h"
#include "millrace/runtime/blocked_ops.h"

namespace millrace {

// Has a global step. A gradient computed at an earlier step is stale and is dropped without an error; taking the
// accumulated gradient advances the global step by one. Thread-safe.
class Accumulator : public Resource {
 public:
  static constexpr char kTypeName[] = "tensorflow::ConditionalAccumulatorBase";

  struct Options {
    std::string name;
    DType dtype = DType::kInvalid;
    PartialShape shape;
    bool sparse = false;
    bool mean = true;  // if false, the sum
  };
  using TakeDone = absl::AnyInvocable<void(StatusOr<std::vector<Tensor>>)>;

  explicit Accumulator(Options options);

  const Options& options() const { return options_; }

  Status Apply(const CallingOp& op, int64_t local_step, const GradientPart& gradient);
  // Calls `done` with the accumulated gradient once at least `num_required` gradients have arrived since the last take.
  void Take(const CallingOp& op, int64_t num_required, TakeDone done);
  // Gradients of earlier steps than this are stale.
  void SetGlobalStep(const CallingOp& op, int64_t step);

  int64_t num_accumulated() const;
  // The number of stale gradients that were dropped.
  int64_t num_dropped() const;
  std::string DebugString() const override;

 private:
  void Cancel(int64_t id);
  // Describes a waiting take for the list of waits.
  void DescribeTake(int64_t num_required, Wait* wait) const;

  const Options options_;
  const std::string label_;  // "accumulator 'name'"

  mutable Mutex mu_;
  int64_t global_step_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t count_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t dropped_ ABSL_GUARDED_BY(mu_) = 0;
  const std::unique_ptr<GradientSum> sum_ ABSL_PT_GUARDED_BY(mu_);
  WaitingLine takes_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace
