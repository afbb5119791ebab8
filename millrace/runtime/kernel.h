// Kernels and the context that they run in.
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
// A kernel is created once per node of a plan and used concurrently by all runs of the plan: members are set in the
// constructor and then constant, or guarded by a lock.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "millrace/base/cancellation.h"
#include "millrace/base/status.h"
#include "millrace/base/thread_handover.h"
#include "millrace/device/device.h"
#include "millrace/graph/graph.h"
#include "millrace/tensor/tensor.h"

namespace millrace {

class FileSystem;
class FileThreads;
class FunctionRunner;
class KernelContext;
class Rendezvous;
class ResourceManager;
class RunRecord;
class StepResources;
class WaitRegistry;

// The argument of a kernel's constructor. The first error is sticky and fails the plan, naming the node.
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
  // Reads the inputs and sets every output. An error fails the step; the caller adds the node's name.
  virtual Status Compute(KernelContext& ctx) = 0;

  // An asynchronous kernel implements ComputeAsync instead.
  virtual bool is_async() const { return false; }
  using Done = absl::AnyInvocable<void(Status)>;
  // Calls `done` exactly once, on any thread, possibly before returning; `ctx` is valid until then. Must not block, and
  // must stop waiting when ctx.cancellation() is cancelled.
  virtual void ComputeAsync(KernelContext& ctx, Done done) { done(Compute(ctx)); }

  // True for kernels that should run on another thread in parallel to other nodes: long-running ones that do not use
  // the intra-op pool themselves.
  virtual bool is_expensive() const { return false; }

  // True for kernels that add to or take from state that outlives the step (queues, accumulators, readers, iterators),
  // or count what is in it, so that steps decide by the number. A repeated run (RunIdentity) gets the outputs of the
  // first attempt instead of a second call. Not for kernels that read or update variables: a repetition reads the
  // current value, and ResourceManager::UpdateVariables applies an update once. Nor for random numbers: which of them a
  // run gets does not matter.
  virtual bool is_recorded() const { return false; }
};

class AsyncKernel : public Kernel {
 public:
  bool is_async() const final { return true; }
  Status Compute(KernelContext&) final { return Internal("an asynchronous kernel was run synchronously"); }
};

// The context that all kernels of one step share. Valid until the step has ended.
//
// Task::Begin fills in the context of a step. Every other one comes from one of the makers below, so a new field is
// considered in two places: there and here.
struct StepContext {
  // For nodes that are run while their graph is compiled: they reach no state of the task, no peer, no file and no
  // other thread. What a node may ask for, if it is not a constant, are the arguments.
  static StepContext ForCompilation(CancellationManager* cancellation = nullptr, ResourceManager* resources = nullptr) {
    return {.resources = resources, .cancellation = cancellation};
  }
  // For a function that a kernel of this step calls: the same, one call deeper. `site` identifies the call within this
  // step; 0 if the run has no identity.
  StepContext ForCall(uint64_t site = 0) const {
    StepContext call = *this;
    ++call.call_depth;
    call.call_path = call.call_path * 0x9e3779b97f4a7c15u + site;
    return call;
  }
  // For work that this step starts and that outlives it, such as a dataset's pipeline: it has the task's state, threads
  // and files, but its own cancellation and step resources, and neither the step's rendezvous nor its event threads.
  // The caller keeps `functions` alive.
  StepContext Detached(CancellationManager* own_cancellation, StepResources* own_resources) const {
    StepContext detached = *this;
    detached.cancellation = own_cancellation;
    detached.step_resources = own_resources;
    detached.rendezvous = nullptr;
    detached.handover = nullptr;
    detached.file_threads = nullptr;
    detached.owner = nullptr;
    detached.run = nullptr;
    return detached;
  }

  int64_t step_id = 0;
  absl::string_view session = {};  // its handle; empty in a session of this process
  ResourceManager* resources = nullptr;
  RunRecord* run = nullptr;          // null if the run has no identity
  Rendezvous* rendezvous = nullptr;  // null in a session without one
  CancellationManager* cancellation = nullptr;
  Scheduler* inter_op = nullptr;
  // Resources that live for this step only (stacks, TensorArrays), by name.
  StepResources* step_resources = nullptr;
  // Where a kernel registers what it is waiting for.
  WaitRegistry* waits = nullptr;
  // The file system of all kernels; may be confined to some directories.
  FileSystem* files = nullptr;
  // Where kernels touch files, which may block; null: on the step's own threads.
  FileThreads* file_threads = nullptr;
  // What keeps the plan, with its nodes and kernels, the session's state and the devices alive, for work that cannot be
  // stopped and may outlive the step. Null if nothing does.
  const std::shared_ptr<const void>* owner = nullptr;
  FunctionRunner* functions = nullptr;  // null in a graph without functions
  int call_depth = 0;                   // functions that are being run around this one
  uint64_t call_path = 0;               // identifies the calls around this one; the same in every attempt of a run
  // The handover of the event threads that work for this step; null if there are none. Outlives the step.
  ThreadHandover* handover = nullptr;

  // Call it before working for long (some 100 us or more) or blocking, so that other threads take over this thread's
  // other duties, such as the sockets that it watches. Cheap if there is nothing to hand over.
  void HandOver() const {
    if (handover != nullptr) handover->HandOver();
  }
};

// One execution of one node. Owned by the executor; valid until the kernel has finished.
class KernelContext {
 public:
  const Node& node() const { return *node_; }
  Device* device() const { return device_; }
  Stream* stream() const { return device_->stream(); }
  // Allocates from this step's cache: for outputs and scratch.
  Allocator* allocator() const { return allocator_; }
  const StepContext& step() const { return *step_; }
  ResourceManager* resources() const { return step_->resources; }
  CancellationManager* cancellation() const { return step_->cancellation; }

  int num_inputs() const { return num_inputs_; }
  int num_outputs() const { return num_outputs_; }
  // A reference to a variable is resolved to its current value if the schema declares a value input.
  const Tensor& input(int i) const { return *inputs_[i]; }
  // The resource of type R that a ref or resource input refers to. NOT_FOUND or INVALID_ARGUMENT if there is none.
  // Defined in resource_manager.h.
  template <typename R>
  StatusOr<RefPtr<R>> resource(int i) const;

  // Allocates output i. RESOURCE_EXHAUSTED if memory is exhausted.
  StatusOr<Tensor*> AllocateOutput(int i, const Shape& shape);
  // The same in the memory of the node's device, where other kernels of the device expect it (MILLRACE_HOST_MEMORY);
  // for kernels that run on several kinds of devices.
  StatusOr<Tensor*> AllocateDeviceOutput(int i, const Shape& shape);
  // AllocateOutput, but reuses the buffer of an input if one of `candidates` has the right size and type and this node
  // is its last user.
  StatusOr<Tensor*> ForwardOrAllocateOutput(std::initializer_list<int> candidates, int i, const Shape& shape);
  // Scratch memory for the duration of this call.
  StatusOr<Tensor> AllocateTemp(DType dtype, const Shape& shape);
  void SetOutput(int i, Tensor tensor) { outputs_[i] = std::move(tensor); }
  Tensor* mutable_output(int i) { return &outputs_[i]; }
  DType output_type(int i) const { return node_->output_type(i); }

  // Call it before working for long or blocking; see StepContext. Not needed in a kernel that is_expensive() or that
  // splits its work with ParallelFor.
  void HandOver() const { step_->HandOver(); }

  // Splits [0, total) into pieces of `grain` over the device's threads; see ThreadPool::ParallelFor.
  void ParallelFor(int64_t total, int64_t grain, absl::FunctionRef<void(int64_t, int64_t)> body) {
    if (total <= grain) {
      if (total > 0) body(0, total);
      return;
    }
    if ((total - 1) / std::max<int64_t>(grain, 1) >= kShortWork) HandOver();
    device_->intra_op_pool()->ParallelFor(total, grain, body);
  }

  // The frame and iteration of this execution; 0:0 outside loops.
  uint64_t frame_id() const { return frame_id_; }
  int64_t iteration() const { return iteration_; }

  // Control flow only. A kernel that leaves an output unset makes it dead (Switch).
  bool is_input_dead() const { return is_input_dead_; }

 private:
  friend class KernelContextAccess;

  // Work of more pieces than this takes a while, some 100 us or more.
  static constexpr int64_t kShortWork = 8;

  const Node* node_ = nullptr;
  Device* device_ = nullptr;
  Allocator* allocator_ = nullptr;
  const StepContext* step_ = nullptr;
  int num_inputs_ = 0;
  int num_outputs_ = 0;
  // Bit i of `forwardable_`: this node may reuse the memory of input i.
  const Tensor** inputs_ = nullptr;
  Tensor* outputs_ = nullptr;
  uint64_t forwardable_ = 0;
  uint64_t frame_id_ = 0;
  int64_t iteration_ = 0;
  bool is_input_dead_ = false;
};

// For the executor, to fill in a context. Kernels do not use it.
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
