// The ops that create queues: FIFOQueue and its variants, by reference and by resource handle.
#include <limits>

#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/data_flow/resource_source.h"
#include "millrace/ops/data_flow/tuple_queue.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

template <TupleQueue::Kind kKind>
class QueueKernel : public Kernel {
 public:
  explicit QueueKernel(KernelInit& init) : source_(init) {
    options_.kind = kKind;
    options_.name = source_.name();
    init.Attr("component_types", &options_.types);
    init.Attr("shapes", &options_.shapes);
    init.Attr("capacity", &options_.capacity);
    if (options_.capacity < 0) options_.capacity = std::numeric_limits<int32_t>::max();
    if constexpr (kKind == TupleQueue::Kind::kRandomShuffle) {
      init.Attr("min_after_dequeue", &options_.min_after_dequeue);
      init.Attr("seed", &options_.seed);
      init.Attr("seed2", &options_.seed2);
    }
    if constexpr (kKind == TupleQueue::Kind::kPriority) {
      if (options_.shapes.size() != options_.types.size()) {
        init.Fail(InvalidArgument("a PriorityQueue needs a shape for each of its ", options_.types.size(),
                                  " components, got ", options_.shapes.size()));
      }
      options_.types.insert(options_.types.begin(), DType::kInt64);
      options_.shapes.insert(options_.shapes.begin(), PartialShape::Scalar());
    }
  }

  Status Compute(KernelContext& ctx) override {
    return source_.Emit(
        ctx, [this] { return TupleQueue::Make(options_); },
        [this](const Queue& queue) {
          const auto* const found = dynamic_cast<const TupleQueue*>(&queue);
          if (found == nullptr) return InvalidArgument(source_.name(), " is not a queue");
          return found->CheckSame(options_);
        });
  }

 private:
  ResourceSource<Queue> source_;
  TupleQueue::Options options_;
};

#define MR_QUEUE(name, handle)                  \
  MILLRACE_OP(name)                             \
      .Output("handle: " handle)                \
      .Attr("component_types: list(type) >= 1") \
      .Attr("shapes: list(shape) >= 0 = []")    \
      .Attr("capacity: int = -1")

#define MR_QUEUE_END(text)              \
  Attr("container: string = ''")        \
      .Attr("shared_name: string = ''") \
      .Stateful()                       \
      .Shape(ScalarShape)               \
      .NotDifferentiable()              \
      .Summary(text)

#define MR_FIFO_QUEUE(name, handle) MR_QUEUE(name, handle).MR_QUEUE_END("A queue: first in, first out.")
MR_FIFO_QUEUE(FIFOQueue, "Ref(string)");
MR_FIFO_QUEUE(FIFOQueueV2, "resource");

#define MR_PADDING_QUEUE(name, handle) \
  MR_QUEUE(name, handle).MR_QUEUE_END("A queue whose elements differ in size: batches are filled up with zeros.")
MR_PADDING_QUEUE(PaddingFIFOQueue, "Ref(string)");
MR_PADDING_QUEUE(PaddingFIFOQueueV2, "resource");

#define MR_SHUFFLE_QUEUE(name, handle)    \
  MR_QUEUE(name, handle)                  \
      .Attr("min_after_dequeue: int = 0") \
      .Attr("seed: int = 0")              \
      .Attr("seed2: int = 0")             \
      .MR_QUEUE_END("A queue that gives its elements in random order.")
MR_SHUFFLE_QUEUE(RandomShuffleQueue, "Ref(string)");
MR_SHUFFLE_QUEUE(RandomShuffleQueueV2, "resource");

#define MR_PRIORITY_QUEUE(name, handle)              \
  MILLRACE_OP(name)                                  \
      .Output("handle: " handle)                     \
      .Attr("component_types: list(type) >= 0 = []") \
      .Attr("shapes: list(shape) >= 0")              \
      .Attr("capacity: int = -1")                    \
      .MR_QUEUE_END("A queue that gives the element of the lowest number first.")
MR_PRIORITY_QUEUE(PriorityQueue, "Ref(string)");
MR_PRIORITY_QUEUE(PriorityQueueV2, "resource");

MILLRACE_KERNEL(FIFOQueue, kCpu, QueueKernel<TupleQueue::Kind::kFifo>);
MILLRACE_KERNEL(FIFOQueueV2, kCpu, QueueKernel<TupleQueue::Kind::kFifo>);
MILLRACE_KERNEL(PaddingFIFOQueue, kCpu, QueueKernel<TupleQueue::Kind::kPaddingFifo>);
MILLRACE_KERNEL(PaddingFIFOQueueV2, kCpu, QueueKernel<TupleQueue::Kind::kPaddingFifo>);
MILLRACE_KERNEL(RandomShuffleQueue, kCpu, QueueKernel<TupleQueue::Kind::kRandomShuffle>);
MILLRACE_KERNEL(RandomShuffleQueueV2, kCpu, QueueKernel<TupleQueue::Kind::kRandomShuffle>);
MILLRACE_KERNEL(PriorityQueue, kCpu, QueueKernel<TupleQueue::Kind::kPriority>);
MILLRACE_KERNEL(PriorityQueueV2, kCpu, QueueKernel<TupleQueue::Kind::kPriority>);

}  // namespace
}  // namespace millrace
