// The ops that use queues: enqueue, dequeue, close, size.
#include <utility>

#include "absl/strings/str_join.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/runtime/queue.h"

namespace millrace {
namespace {

std::string TypesText(absl::Span<const DType> types) {
  return absl::StrJoin(types, ", ", [](std::string* out, DType t) { out->append(DTypeName(t)); });
}

// Checks that a node's component types match the queue's.
Status CheckTypes(const Queue& queue, absl::Span<const DType> types) {
  if (absl::MakeConstSpan(queue.types()) == types) return absl::OkStatus();
  return InvalidArgument("Signature mismatch, have: ", TypesText(types), " expected: ", TypesText(queue.types()));
}

// QueueEnqueue and QueueEnqueueMany.
template <bool kMany>
class EnqueueKernel : public AsyncKernel {
 public:
  explicit EnqueueKernel(KernelInit& init) {
    int64_t timeout_ms = -1;
    init.Attr("timeout_ms", &timeout_ms);
    if (timeout_ms != -1) init.Fail(InvalidArgument("Timeout not supported yet."));
  }
  bool is_recorded() const override { return true; }

  void ComputeAsync(KernelContext& ctx, Done done) override {
    StatusOr<RefPtr<Queue>> queue = ctx.resource<Queue>(0);
    if (!queue.ok()) return done(queue.status());
    if (Status fits = CheckTypes(**queue, ctx.node().input_types().subspan(1)); !fits.ok()) return done(fits);
    Queue::Tuple tuple;
    tuple.reserve(static_cast<size_t>(ctx.num_inputs()) - 1);
    for (int i = 1; i < ctx.num_inputs(); ++i) tuple.push_back(ctx.input(i));
    if (kMany) {
      (*queue)->EnqueueMany(CallingOp(ctx), std::move(tuple), std::move(done));
    } else {
      (*queue)->Enqueue(CallingOp(ctx), std::move(tuple), std::move(done));
    }
  }
};

enum class DequeueKind { kOne, kMany, kUpTo };

template <DequeueKind kKind>
class DequeueKernel : public AsyncKernel {
 public:
  explicit DequeueKernel(KernelInit& init) {
    int64_t timeout_ms = -1;
    init.Attr("timeout_ms", &timeout_ms);
    if (timeout_ms != -1) init.Fail(InvalidArgument("Timeout not supported yet."));
  }
  bool is_recorded() const override { return true; }

  void ComputeAsync(KernelContext& ctx, Done done) override {
    StatusOr<RefPtr<Queue>> queue = ctx.resource<Queue>(0);
    if (!queue.ok()) return done(queue.status());
    if (Status fits = CheckTypes(**queue, ctx.node().output_types()); !fits.ok()) return done(fits);
    Queue::DequeueDone emit = [&ctx, done = std::move(done)](StatusOr<Queue::Tuple> tuple) mutable {
      if (!tuple.ok()) return done(tuple.status());
      for (size_t i = 0; i < tuple->size(); ++i) ctx.SetOutput(static_cast<int>(i), std::move((*tuple)[i]));
      done(absl::OkStatus());
    };
    if constexpr (kKind == DequeueKind::kOne) {
      (*queue)->Dequeue(CallingOp(ctx), std::move(emit));
    } else {
      const Tensor& n = ctx.input(1);
      if (n.rank() != 0) return emit(InvalidArgument("n must be a scalar, got ", n.DebugString()));
      const int64_t wanted = n.scalar<int32_t>();
      if (wanted < 0) {
        return emit(InvalidArgument("Dequeue", kKind == DequeueKind::kMany ? "Many" : "UpTo", " requested ", wanted,
                                    " < 0 elements"));
      }
      (*queue)->DequeueMany(CallingOp(ctx), wanted, kKind == DequeueKind::kUpTo, std::move(emit));
    }
  }
};

class QueueCloseKernel : public AsyncKernel {
 public:
  explicit QueueCloseKernel(KernelInit& init) { init.Attr("cancel_pending_enqueues", &cancel_enqueues_); }

  void ComputeAsync(KernelContext& ctx, Done done) override {
    StatusOr<RefPtr<Queue>> queue = ctx.resource<Queue>(0);
    if (!queue.ok()) return done(queue.status());
    (*queue)->Close(CallingOp(ctx), cancel_enqueues_, std::move(done));
  }

 private:
  bool cancel_enqueues_ = false;
};

class IsClosedKernel : public Kernel {
 public:
  explicit IsClosedKernel(KernelInit&) {}
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(RefPtr<Queue> queue, ctx.resource<Queue>(0));
    ctx.SetOutput(0, Tensor::Scalar<bool>(queue->is_closed()));
    return absl::OkStatus();
  }
};

class QueueSizeKernel : public Kernel {
 public:
  explicit QueueSizeKernel(KernelInit&) {}
  bool is_recorded() const override { return true; }
  Status Compute(KernelContext& ctx) override {
    MR_ASSIGN_OR_RETURN(RefPtr<Queue> queue, ctx.resource<Queue>(0));
    ctx.SetOutput(0, Tensor::Scalar<int32_t>(static_cast<int32_t>(queue->size())));
    return absl::OkStatus();
  }
};

// Sets the outputs to the queue's declared component shapes, with `prefix` as the first dimension of a batch.
Status ComponentShapes(ShapeContext& c, const int64_t* prefix) {
  const Endpoint handle = c.node().input(0);
  std::vector<PartialShape> shapes;
  if (handle.node->type().find("Queue") != std::string::npos) {
    shapes = handle.node->AttrOr<std::vector<PartialShape>>("shapes", {});
    if (handle.node->type().find("PriorityQueue") == 0) shapes.insert(shapes.begin(), PartialShape::Scalar());
  }
  if (static_cast<int>(shapes.size()) != c.num_outputs()) return UnknownShape(c);
  for (int i = 0; i < c.num_outputs(); ++i) {
    if (prefix == nullptr) {
      c.set_output(i, shapes[i]);
      continue;
    }
    if (!shapes[i].known_rank()) continue;
    PartialShape batch({*prefix});
    for (int64_t d : shapes[i].dims()) batch.AddDim(d);
    c.set_output(i, batch);
  }
  return absl::OkStatus();
}

Status DequeueShape(ShapeContext& c) { return ComponentShapes(c, nullptr); }

Status DequeueManyShape(ShapeContext& c) {
  MR_RETURN_IF_ERROR(c.WithRank(1, 0).status());
  int64_t n = PartialShape::kUnknown;
  if (const Tensor* const wanted = c.constant(1); wanted != nullptr) {
    n = wanted->scalar<int32_t>();
    if (n < 0) return InvalidArgument("Input 'n' must be >= 0, but is ", n);
  }
  return ComponentShapes(c, &n);
}

Status DequeueUpToShape(ShapeContext& c) {
  MR_RETURN_IF_ERROR(c.WithRank(1, 0).status());
  const int64_t n = PartialShape::kUnknown;
  return ComponentShapes(c, &n);
}

#define MR_ENQUEUE(name, handle, text)      \
  MILLRACE_OP(name)                         \
      .Input("handle: " handle)             \
      .Input("components: Tcomponents")     \
      .Attr("Tcomponents: list(type) >= 1") \
      .Attr("timeout_ms: int = -1")         \
      .Shape(NoOutputs)                     \
      .NotDifferentiable()                  \
      .Trait(OpTrait::kWaits)               \
      .Summary(text)
MR_ENQUEUE(QueueEnqueue, "Ref(string)", "Puts an element into a queue, once there is room.");
MR_ENQUEUE(QueueEnqueueV2, "resource", "Puts an element into a queue, once there is room.").Stateful();
MR_ENQUEUE(QueueEnqueueMany, "Ref(string)", "Puts rows into a queue as there is room.");
MR_ENQUEUE(QueueEnqueueManyV2, "resource", "Puts rows into a queue as there is room.").Stateful();

#define MR_DEQUEUE(name, handle)                \
  MILLRACE_OP(name)                             \
      .Input("handle: " handle)                 \
      .Output("components: component_types")    \
      .Attr("component_types: list(type) >= 1") \
      .Attr("timeout_ms: int = -1")             \
      .Shape(DequeueShape)                      \
      .NotDifferentiable()                      \
      .Trait(OpTrait::kWaits)                   \
      .Summary("Dequeues an element, waiting until there is one.")
MR_DEQUEUE(QueueDequeue, "Ref(string)");
MR_DEQUEUE(QueueDequeueV2, "resource").Stateful();

#define MR_DEQUEUE_MANY(name, handle, shape_fn, text) \
  MILLRACE_OP(name)                                   \
      .Input("handle: " handle)                       \
      .Input("n: int32")                              \
      .Output("components: component_types")          \
      .Attr("component_types: list(type) >= 1")       \
      .Attr("timeout_ms: int = -1")                   \
      .Shape(shape_fn)                                \
      .NotDifferentiable()                            \
      .Trait(OpTrait::kWaits)                         \
      .Summary(text)
MR_DEQUEUE_MANY(QueueDequeueMany, "Ref(string)", DequeueManyShape, "Takes a batch out of a queue.");
MR_DEQUEUE_MANY(QueueDequeueManyV2, "resource", DequeueManyShape, "Takes a batch out of a queue.").Stateful();
MR_DEQUEUE_MANY(QueueDequeueUpTo, "Ref(string)", DequeueUpToShape,
                "Takes a batch out of a queue, a smaller one when it is closed.");
MR_DEQUEUE_MANY(QueueDequeueUpToV2, "resource", DequeueUpToShape,
                "Takes a batch out of a queue, a smaller one when it is closed.")
    .Stateful();

#define MR_QUEUE_CLOSE(name, handle)                 \
  MILLRACE_OP(name)                                  \
      .Input("handle: " handle)                      \
      .Attr("cancel_pending_enqueues: bool = false") \
      .Shape(NoOutputs)                              \
      .NotDifferentiable()                           \
      .Summary("Closes a queue to new elements.")
MR_QUEUE_CLOSE(QueueClose, "Ref(string)");
MR_QUEUE_CLOSE(QueueCloseV2, "resource").Stateful();

#define MR_QUEUE_IS_CLOSED(name, handle) \
  MILLRACE_OP(name)                      \
      .Input("handle: " handle)          \
      .Output("is_closed: bool")         \
      .Shape(ScalarShape)                \
      .NotDifferentiable()               \
      .Summary("True if a queue is closed.")
MR_QUEUE_IS_CLOSED(QueueIsClosed, "Ref(string)");
MR_QUEUE_IS_CLOSED(QueueIsClosedV2, "resource").Stateful();

#define MR_QUEUE_SIZE(name, handle) \
  MILLRACE_OP(name)                 \
      .Input("handle: " handle)     \
      .Output("size: int32")        \
      .Shape(ScalarShape)           \
      .NotDifferentiable()          \
      .Summary("The number of elements in a queue.")
MR_QUEUE_SIZE(QueueSize, "Ref(string)");
MR_QUEUE_SIZE(QueueSizeV2, "resource").Stateful();

MILLRACE_KERNEL(QueueEnqueue, kCpu, EnqueueKernel<false>);
MILLRACE_KERNEL(QueueEnqueueV2, kCpu, EnqueueKernel<false>);
MILLRACE_KERNEL(QueueEnqueueMany, kCpu, EnqueueKernel<true>);
MILLRACE_KERNEL(QueueEnqueueManyV2, kCpu, EnqueueKernel<true>);
MILLRACE_KERNEL(QueueDequeue, kCpu, DequeueKernel<DequeueKind::kOne>);
MILLRACE_KERNEL(QueueDequeueV2, kCpu, DequeueKernel<DequeueKind::kOne>);
MILLRACE_KERNEL(QueueDequeueMany, kCpu, DequeueKernel<DequeueKind::kMany>);
MILLRACE_KERNEL(QueueDequeueManyV2, kCpu, DequeueKernel<DequeueKind::kMany>);
MILLRACE_KERNEL(QueueDequeueUpTo, kCpu, DequeueKernel<DequeueKind::kUpTo>);
MILLRACE_KERNEL(QueueDequeueUpToV2, kCpu, DequeueKernel<DequeueKind::kUpTo>);
MILLRACE_KERNEL(QueueClose, kCpu, QueueCloseKernel);
MILLRACE_KERNEL(QueueCloseV2, kCpu, QueueCloseKernel);
MILLRACE_KERNEL(QueueIsClosed, kCpu, IsClosedKernel);
MILLRACE_KERNEL(QueueIsClosedV2, kCpu, IsClosedKernel);
MILLRACE_KERNEL(QueueSize, kCpu, QueueSizeKernel);
MILLRACE_KERNEL(QueueSizeV2, kCpu, QueueSizeKernel);

}  // namespace
}  // namespace millrace
