// Gradients of several workers gathered for one update, stale ones left out.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "millrace/base/mutex.h"
#include "millrace/ops/data_flow/gradient_sum.h"
#include "millrace/runtime/blocked_ops.h"

namespace millrace {

// Has a time step. A gradient computed at an earlier step than that is dropped, without an error;
// taking what was gathered advances it by one. Thread-safe.
class Accumulator : public Resource {
 public:
  static constexpr char kTypeName[] = "tensorflow::ConditionalAccumulatorBase";

  struct Options {
    std::string name;
    DType dtype = DType::kInvalid;
    PartialShape shape;
    bool sparse = false;
    bool mean = true;  // otherwise the sum
  };
  using TakeDone = absl::AnyInvocable<void(StatusOr<std::vector<Tensor>>)>;

  explicit Accumulator(Options options);

  const Options& options() const { return options_; }

  Status Apply(const CallingOp& op, int64_t local_step, const GradientPart& gradient);
  // Calls `done` with what was gathered since the last time once that are at least `num_required`
  // gradients.
  void Take(const CallingOp& op, int64_t num_required, TakeDone done);
  // Gradients of steps before this one are stale.
  void SetGlobalStep(const CallingOp& op, int64_t step);

  int64_t num_accumulated() const;
  // How many gradients were stale.
  int64_t num_dropped() const;
  std::string DebugString() const override;

 private:
  void Cancel(int64_t id);
  // What a list of waits says of a take that waits.
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
