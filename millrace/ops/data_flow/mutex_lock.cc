// MutexV2, MutexLock and ConsumeMutexLock: a critical section in a graph. The lock is a value and is held until its
// last copy is destroyed.
#include <deque>

#include "millrace/base/mutex.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/data_flow/resource_source.h"
#include "millrace/runtime/blocked_ops.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

// Is acquired by one op at a time, in FIFO order. Thread-safe.
class GraphMutex : public Resource {
 public:
  static constexpr char kTypeName[] = "N10tensorflow5MutexE";

  explicit GraphMutex(std::string name) : name_(std::move(name)), waiting_("mutex '" + name_ + "'") {}

  // Calls `done` once the lock is acquired, or with CANCELLED.
  void Acquire(const CallingOp& op, absl::AnyInvocable<void(Status)> done) {
    FinishedOps finished(op.step);
    {
      MutexLock lock(&mu_);
      Attempt attempt(op, "the lock of");
      attempt.kind = Wait::Kind::kOther;
      attempt.run = [this, op](Status*) { return TryTake(op); };
      attempt.cancelled = "Lock acquisition cancelled.";
      attempt.done = std::move(done);
      waiting_.Join(std::move(attempt), &finished,
                    [this](int64_t id) { return [self = ShareRef(this), id] { self->Cancel(id); }; });
    }
    finished.Tell(op.step);
  }
  void Release() {
    FinishedOps finished;
    {
      MutexLock lock(&mu_);
      taken_ = false;
      waiting_.Advance(&finished);
    }
    finished.Tell(nullptr);
  }
  std::string DebugString() const override { return "Mutex " + name_; }

 private:
  Progress TryTake(const CallingOp& op) ABSL_NO_THREAD_SAFETY_ANALYSIS {  // called by the line, with mu_ held
    if (taken_) return Progress::kNone;
    op.Change([this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { taken_ = true; });
    return Progress::kDone;
  }
  void Cancel(int64_t id) {
    FinishedOps finished;
    {
      MutexLock lock(&mu_);
      waiting_.Cancel(id, &finished);
    }
    finished.Tell(nullptr);
  }

  const std::string name_;
  Mutex mu_;
  bool taken_ ABSL_GUARDED_BY(mu_) = false;
  WaitingLine waiting_ ABSL_GUARDED_BY(mu_);
};

// The lock, shared by all copies of the variant.
class HeldLock : public VariantValue {
 public:
  explicit HeldLock(RefPtr<GraphMutex> mutex) : mutex_(std::move(mutex)) {}
  ~HeldLock() override { mutex_->Release(); }
  absl::string_view TypeName() const override { return "(anonymous namespace)::Mutex::SharedLockReleaser"; }
  std::string DebugString() const override { return "lock of " + mutex_->DebugString(); }

 private:
  const RefPtr<GraphMutex> mutex_;
};

class MutexV2Kernel : public Kernel {
 public:
  explicit MutexV2Kernel(KernelInit& init) : source_(init) {}
  Status Compute(KernelContext& ctx) override {
    return source_.Emit(
        ctx, [this]() -> StatusOr<RefPtr<GraphMutex>> { return MakeRef<GraphMutex>(source_.name()); },
        [](const GraphMutex&) { return absl::OkStatus(); });
  }

 private:
  ResourceSource<GraphMutex> source_;
};

class MutexLockKernel : public AsyncKernel {
 public:
  explicit MutexLockKernel(KernelInit&) {}
  void ComputeAsync(KernelContext& ctx, Done done) override {
    StatusOr<RefPtr<GraphMutex>> mutex = ctx.resource<GraphMutex>(0);
    if (!mutex.ok()) return done(mutex.status());
    GraphMutex* const raw = mutex->get();
    raw->Acquire(CallingOp(ctx), [&ctx, mutex = *std::move(mutex), done = std::move(done)](Status status) mutable {
      if (status.ok()) ctx.SetOutput(0, Tensor::Scalar(Variant(MakeRef<HeldLock>(std::move(mutex)))));
      done(std::move(status));
    });
  }
};

// Keeps the lock held until this op; the executor releases the value after it.
class ConsumeMutexLockKernel : public Kernel {
 public:
  explicit ConsumeMutexLockKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    const Tensor& lock = ctx.input(0);
    if (lock.rank() != 0 || lock.scalar<Variant>().Get<HeldLock>() == nullptr) {
      return InvalidArgument("Expected input to contain a SharedLockReleaser object, but saw variant: '",
                             lock.num_elements() == 1 ? lock.scalar<Variant>().DebugString() : lock.DebugString(), "'");
    }
    return absl::OkStatus();
  }
};

MILLRACE_OP(MutexV2)
    .Summary("A mutex, which one MutexLock holds at a time.")
    .Output("resource: resource")
    .Attr("container: string = ''")
    .Attr("shared_name: string = ''")
    .Stateful()
    .Shape(ScalarShape);
MILLRACE_OP(MutexLock)
    .Summary("Waits for the mutex; it is held as long as the returned value exists.")
    .Input("mutex: resource")
    .Output("mutex_lock: variant")
    .Stateful()
    .Trait(OpTrait::kWaits)
    .Shape(ScalarShape);
MILLRACE_OP(ConsumeMutexLock)
    .Summary("Consumes a lock, which is held until then.")
    .Input("mutex_lock: variant")
    .Stateful()
    .Shape(NoOutputs);
MILLRACE_KERNEL(MutexV2, kCpu, MutexV2Kernel);
MILLRACE_KERNEL(MutexLock, kCpu, MutexLockKernel);
MILLRACE_KERNEL(ConsumeMutexLock, kCpu, ConsumeMutexLockKernel);

}  // namespace
}  // namespace millrace
