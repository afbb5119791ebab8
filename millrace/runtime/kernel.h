// What a kernel is and what it sees.
//
//   class MatMulKernel : public Kernel {
//    public:
//     explicit MatMulKernel(KernelInit& init) {
//       init.Attr("transpose_a", &transpose_a_);
//     }
//     Status Compute(KernelContext& ctx) override;
//   };
//   MILLRACE_KERNEL(MatMul, kCpu, MatMulKernel);
//
// A kernel is made once for each node of a plan and used by all runs of it, concurrently: members are
// set in the constructor and constant after, or guarded.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "millrace/base/cancellation.h"
#include "millrace/base/status.h"
#include "millrace/device/device.h"
#include "millrace/graph/graph.h"
#include "millrace/tensor/tensor.h"

namespace millrace {

class FileSystem;
class FunctionRunner;
class KernelContext;
class Rendezvous;
class ResourceManager;
class StepResources;
class WaitRegistry;

// Handed to a kernel's constructor: its node. The first error sticks and fails the plan, naming the node.
class KernelInit {
 public:
  KernelInit(const Node& node, Device* device) : node_(node), device_(device) {}

  const Node& node() const { return node_; }
  Device* device() const { return device_; }
  DType input_type(int i) const { return node_.input_type(i); }
  DType output_type(int i) const { return node_.output_type(i); }

  template <typename T>
  void Attr(absl::string_view name, T* value) {
    StatusOr<T> result = node_.Attr<T>(name);
    if (result.ok()) {
      *value = *std::move(result);
    } else {
      Fail(result.status());
    }
  }
  void Fail(const Status& status) {
    if (status_.ok()) status_ = status;
  }
  const Status& status() const { return status_; }

 private:
  const Node& node_;
  Device* device_;
  Status status_;
};

class Kernel {
 public:
  virtual ~Kernel() = default;
  // Reads inputs, sets every output. An error fails the step; the caller adds the node's name.
  virtual Status Compute(KernelContext& ctx) = 0;

  // An asynchronous kernel implements ComputeAsync instead.
  virtual bool is_async() const { return false; }
  using Done = absl::AnyInvocable<void(Status)>;
  // Calls `done` exactly once, on any thread, perhaps before returning. `ctx` lives until then.
  // It must not block; what it waits for ends early when ctx.cancellation() says so.
  virtual void ComputeAsync(KernelContext& ctx, Done done) { done(Compute(ctx)); }

  // True for work worth a thread of its own beside other nodes' (it is long and does not use the
  // intra-op pool itself).
  virtual bool is_expensive() const { return false; }
};

class AsyncKernel : public Kernel {
 public:
  bool is_async() const final { return true; }
  Status Compute(KernelContext&) final { return Internal("an asynchronous kernel was run synchronously"); }
};

// What all kernels of one step share. Lives until the step has ended.
struct StepContext {
  int64_t step_id = 0;
  ResourceManager* resources = nullptr;
  Rendezvous* rendezvous = nullptr;           // null in a session without one
  CancellationManager* cancellation = nullptr;
  Scheduler* inter_op = nullptr;
  // Things that live for this step only (stacks, TensorArrays), by name.
  StepResources* step_resources = nullptr;
  // Where a kernel notes what it is blocked on.
  WaitRegistry* waits = nullptr;
  // All files that kernels touch, perhaps confined to some folders.
  FileSystem* files = nullptr;
  FunctionRunner* functions = nullptr;        // null in a graph without functions
};

// One execution of one node. Belongs to the executor; a kernel uses it only until it has finished.
class KernelContext {
 public:
  const Node& node() const { return *node_; }
  Device* device() const { return device_; }
  Stream* stream() const { return device_->stream(); }
  // Gives memory of this step's cache: outputs and scratch.
  Allocator* allocator() const { return allocator_; }
  const StepContext& step() const { return *step_; }
  ResourceManager* resources() const { return step_->resources; }
  CancellationManager* cancellation() const { return step_->cancellation; }

  int num_inputs() const { return num_inputs_; }
  int num_outputs() const { return num_outputs_; }
  // References to variables are resolved to their current value where the schema takes a value.
  const Tensor& input(int i) const { return *inputs_[i]; }
  // For a ref or resource input: what it points to, of type R. NOT_FOUND or INVALID_ARGUMENT
  // otherwise. Declared in resource_manager.h.
  template <typename R>
  StatusOr<RefPtr<R>> resource(int i) const;

  // Memory for output i, also set as that output. RESOURCE_EXHAUSTED when there is none.
  StatusOr<Tensor*> AllocateOutput(int i, const Shape& shape);
  // The same, in place of an input when one of `candidates` is of the right size and type and this
  // node is the last to see it.
  StatusOr<Tensor*> ForwardOrAllocateOutput(std::initializer_list<int> candidates, int i,
                                            const Shape& shape);
  // Scratch memory for the time of this call.
  StatusOr<Tensor> AllocateTemp(DType dtype, const Shape& shape);
  void SetOutput(int i, Tensor tensor) { outputs_[i] = std::move(tensor); }
  Tensor* mutable_output(int i) { return &outputs_[i]; }
  DType output_type(int i) const { return node_->output_type(i); }

  // Splits [0, total) into pieces of `grain` over the device's threads; see ThreadPool::ParallelFor.
  void ParallelFor(int64_t total, int64_t grain, absl::FunctionRef<void(int64_t, int64_t)> body) {
    if (total <= grain) {
      if (total > 0) body(0, total);
      return;
    }
    device_->intra_op_pool()->ParallelFor(total, grain, body);
  }

  // Where this execution stands in loops: a number for the frame and the iteration in it; 0:0 outside.
  uint64_t frame_id() const { return frame_id_; }
  int64_t iteration() const { return iteration_; }

  // Control flow: a kernel that leaves an output unset has declared it dead (Switch).
  bool is_input_dead() const { return is_input_dead_; }

 private:
  friend class Executor;
  friend class KernelContextAccess;

  const Node* node_ = nullptr;
  Device* device_ = nullptr;
  Allocator* allocator_ = nullptr;
  const StepContext* step_ = nullptr;
  int num_inputs_ = 0;
  int num_outputs_ = 0;
  // Input i; `forwardable_` bit i says that this node may take its memory over.
  const Tensor** inputs_ = nullptr;
  Tensor* outputs_ = nullptr;
  uint64_t forwardable_ = 0;
  uint64_t frame_id_ = 0;
  int64_t iteration_ = 0;
  bool is_input_dead_ = false;
};

// How the executor fills a context in; kernels never need it.
class KernelContextAccess {
 public:
  explicit KernelContextAccess(KernelContext& ctx) : ctx_(ctx) {}
  void Set(const Node* node, Device* device, Allocator* allocator, const StepContext* step) {
    ctx_.node_ = node;
    ctx_.device_ = device;
    ctx_.allocator_ = allocator;
    ctx_.step_ = step;
  }
  void SetInputs(const Tensor** inputs, int n, uint64_t forwardable) {
    ctx_.inputs_ = inputs;
    ctx_.num_inputs_ = n;
    ctx_.forwardable_ = forwardable;
  }
  void SetOutputs(Tensor* outputs, int n) {
    ctx_.outputs_ = outputs;
    ctx_.num_outputs_ = n;
  }
  void SetFrame(uint64_t frame_id, int64_t iteration, bool is_input_dead) {
    ctx_.frame_id_ = frame_id;
    ctx_.iteration_ = iteration;
    ctx_.is_input_dead_ = is_input_dead;
  }

 private:
  KernelContext& ctx_;
};

}  // namespace millrace
