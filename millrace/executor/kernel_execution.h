// Everything around one call of a kernel: inputs, references, outputs, statistics, exceptions, the error's name.
#pragma once

#include <utility>
#include <vector>

#include "millrace/base/exception_status.h"
#include "millrace/executor/plan.h"

namespace millrace {

// The error of a node as the user sees it: what happened, then "[[{{node a/b}}]] (MatMul on /job:.../CPU:0)".
Status NodeError(const Node& node, const Device& device, const Status& status);

// The error of a step that fetches a dead value, which was not computed.
Status DeadFetchError(const Endpoint& fetch);

// Reads the variable that `reference` refers to; FAILED_PRECONDITION, naming it, if it is uninitialized.
StatusOr<Tensor> ReadReference(const Tensor& reference);

// Runs kernels, one at a time. Sequential, straight-line and framed runs and constant folding all go through it.
//
//   const Tensor** inputs = execution.RoomForInputs(n.num_inputs);   // point each at its value
//   Status status = execution.Run(n, args, forwardable, outputs);    // or Start, for an asynchronous kernel
//
// Not thread-safe; an asynchronous kernel needs an object of its own until it has finished. Reuses its memory, so a
// call allocates nothing by itself.
class KernelExecution {
 public:
  KernelExecution() = default;
  KernelExecution(const KernelExecution&) = delete;
  KernelExecution& operator=(const KernelExecution&) = delete;

  const Tensor** RoomForInputs(int num_inputs) {
    if (inputs_.size() < static_cast<size_t>(num_inputs)) inputs_.resize(num_inputs);
    return inputs_.data();
  }
  // Sets the frame and iteration of the following calls, and whether their inputs are dead. Initially outside all loops
  // and live.
  void SetFrame(uint64_t frame_id, int64_t iteration, bool is_input_dead) {
    KernelContextAccess(ctx_).SetFrame(frame_id, iteration, is_input_dead);
    is_dead_ = is_input_dead;
  }

  // Runs a synchronous kernel. Bit i of `forwardable` says that the node may take over the memory of input i. The error
  // names the node.
  ABSL_ATTRIBUTE_ALWAYS_INLINE Status Run(const PlanNode& n, const RunArgs& args, uint64_t forwardable,
                                          Tensor* outputs) {
    if (ABSL_PREDICT_FALSE(n.deref != 0)) MR_RETURN_IF_ERROR(ReadReferences(n));
    FillIn(n, args, forwardable, outputs);
    const int64_t start = ABSL_PREDICT_FALSE(args.stats != nullptr) ? args.stats->NowNanos() : 0;
    Status status = Call(*n.kernel);
    if (ABSL_PREDICT_FALSE(args.stats != nullptr)) {
      // Statistics time the work, not only how long it takes to enqueue it.
      if (!n.device->shares_host_memory()) status.Update(n.device->stream()->Synchronize());
      Record(n, args, outputs, start);
    }
    if (ABSL_PREDICT_FALSE(n.deref != 0)) LetGoOfValues(n);
    if (ABSL_PREDICT_FALSE(!status.ok())) return NodeError(*n.node, *n.device, status);
    return status;
  }

  // Starts an asynchronous kernel. `done` gets the status, whose error names the node, on any thread, possibly before
  // this returns; it may reuse or destroy this object. `n`, `args` and `outputs` must live until then. A kernel that
  // throws, on this or another thread, or that drops its callback, fails too.
  template <typename Done>
  void Start(const PlanNode& n, const RunArgs& args, uint64_t forwardable, Tensor* outputs, Done done) {
    node_ = &n;
    args_ = &args;
    outputs_ = outputs;
    start_ = args.stats != nullptr ? args.stats->NowNanos() : 0;
    if (n.deref != 0) {
      if (Status status = ReadReferences(n); !status.ok()) return done(std::move(status));
    }
    FillIn(n, args, forwardable, outputs);
    try {
      n.kernel->ComputeAsync(ctx_, End<Done>(this, std::move(done)));
    } catch (const std::exception& exception) {
      LogAbandoned(exception);  // its End has been dropped, which fails the node
    }
  }

 private:
  // The callback of an asynchronous kernel. If it is dropped instead of called, because an exception has destroyed what
  // held it, the node fails. This object is not touched after a call.
  template <typename Done>
  class End {
   public:
    End(KernelExecution* execution, Done done) : execution_(execution), done_(std::move(done)) {}
    End(End&& other) noexcept : execution_(std::exchange(other.execution_, nullptr)), done_(std::move(other.done_)) {}
    ~End() {
      if (ABSL_PREDICT_FALSE(execution_ != nullptr)) Drop();
    }
    void operator()(Status status) {
      KernelExecution* const execution = std::exchange(execution_, nullptr);
      execution->Finish(&status);
      done_(std::move(status));
    }

   private:
    // Not here: whoever drops it may hold locks.
    void Drop() {
      Scheduler* const pool = execution_->args_->step->inter_op;
      const Status why = DroppedError();
      if (pool == nullptr) return (*this)(why);
      pool->Schedule([why, end = End(std::move(*this))]() mutable { end(why); });
    }

    KernelExecution* execution_;
    Done done_;
  };

  ABSL_ATTRIBUTE_ALWAYS_INLINE Status Call(Kernel& kernel) {
    try {
      return kernel.Compute(ctx_);
    } catch (const std::exception& exception) {
      return ExceptionStatus(exception);
    }
  }
  // What an asynchronous kernel's end has in common.
  void Finish(Status* status) {
    if (args_->stats != nullptr) Record(*node_, *args_, outputs_, start_);
    if (node_->deref != 0) LetGoOfValues(*node_);
    if (!status->ok()) *status = NodeError(*node_->node, *node_->device, *status);
  }
  static Status DroppedError();
  static void LogAbandoned(const std::exception& exception);
  void FillIn(const PlanNode& n, const RunArgs& args, uint64_t forwardable, Tensor* outputs) {
    KernelContextAccess access(ctx_);
    access.Set(n.node, n.device, args.allocator, args.step);
    // A value that was read from a variable belongs to the variable, so its memory must not be forwarded.
    access.SetInputs(inputs_.data(), n.num_inputs, forwardable & ~n.deref);
    access.SetOutputs(outputs, n.num_outputs);
  }
  void Record(const PlanNode& n, const RunArgs& args, const Tensor* outputs, int64_t start) const;
  Status ReadReferences(const PlanNode& n);
  void LetGoOfValues(const PlanNode& n);

  KernelContext ctx_;
  std::vector<const Tensor*> inputs_;
  std::vector<Tensor> values_;  // values of the variables that ref inputs refer to, by input
  bool is_dead_ = false;
  // The asynchronous kernel that is running.
  const PlanNode* node_ = nullptr;
  const RunArgs* args_ = nullptr;
  Tensor* outputs_ = nullptr;
  int64_t start_ = 0;
};

// The value of a Const, read from its kernel outside of any step.
StatusOr<Tensor> ConstantValue(const PlanNode& n);

}  // namespace millrace
