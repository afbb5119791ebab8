#include "millrace/train/queue_inputs.h"

#include "absl/strings/str_cat.h"
#include "millrace/api/op_call.h"
#include "millrace/api/operators.h"
#include "millrace/api/variable.h"
#include "millrace/train/queue_runner.h"
#include "millrace/train/summary.h"

namespace millrace::queues {
namespace {

bool IsPositive(const Scope& s, const char* what, int64_t value) {
  if (value > 0) return true;
  s.UpdateStatus(InvalidArgument(s.prefix(), ": ", what, " is ", value, ", and must be positive"));
  return false;
}

// What is known of a shape must not be lost in a queue.
Output WithShape(const Scope& s, const Output& tensor, const PartialShape& shape) {
  if (tensor.empty() || !shape.known_rank() || tensor.shape() == shape) return tensor;
  return Op(s, "EnsureShape", {tensor}, {{"shape", shape}});
}

// The threads that fill a queue, and what closes it.
void RunQueue(const Scope& s, const InputQueue& queue, std::vector<Operation> enqueue_ops, int64_t capacity) {
  const Operation close = AddOp(s, "QueueCloseV2", {queue.handle});
  const Operation cancel = AddOp(s, "QueueCloseV2", {queue.handle}, {{"cancel_pending_enqueues", true}});
  if (!s.ok()) return;
  AddQueueRunner(s, QueueRunner({.name = queue.handle.op().name(),
                                 .enqueue_ops = std::move(enqueue_ops),
                                 .close_op = close,
                                 .cancel_op = cancel}));
  const Output size = Op(s, "Cast", {queue.Size(s)}, {{"DstT", DType::kFloat}});
  ScalarSummary(s, absl::StrCat("fraction_of_", capacity, "_full"), size / static_cast<float>(capacity));
}

Output FirstDim(const Scope& s, const Output& tensor) {
  return Op(s, "StridedSlice",
            {Op(s, "Shape", {tensor}), std::vector<int32_t>{0}, std::vector<int32_t>{1}, std::vector<int32_t>{1}},
            {{"shrink_axis_mask", 1}});
}

PartialShape WithoutFirst(const PartialShape& shape) {
  if (!shape.known_rank()) return shape;
  std::vector<int64_t> dims;
  for (int i = 1; i < shape.rank(); ++i) dims.push_back(shape.dim(i));
  return PartialShape(dims);
}

PartialShape WithFirst(int64_t first, const PartialShape& shape) {
  if (!shape.known_rank()) return shape;
  std::vector<int64_t> dims = {first};
  for (int i = 0; i < shape.rank(); ++i) dims.push_back(shape.dim(i));
  return PartialShape(dims);
}

struct Batching {
  const char* queue = "FIFOQueueV2";
  AttrList attrs = {};
  int num_threads = 1;
  int64_t capacity = 0;
  bool enqueue_many = false;
  bool any_shape = false;
  bool smaller_final = false;
  Input keep_input = Input();
};

// The rows to enqueue: those of `tensors` that are to be kept, as a batch.
std::vector<Output> KeptRows(const Scope& s, const std::vector<Output>& tensors, const Batching& how) {
  const Output keep = Op(s, "Reshape", {how.keep_input.In(s, DType::kBool), std::vector<int32_t>{-1}});
  const Output rows = Op(s, "Reshape", {Op(s, "Where", {keep}), std::vector<int32_t>{-1}});
  std::vector<Output> kept;
  for (const Output& tensor : tensors) {
    kept.push_back(Op(s, "GatherV2", {how.enqueue_many ? tensor : Op(s, "ExpandDims", {tensor, 0}), rows, 0}));
  }
  return kept;
}

// The types and shapes of the examples of all pipelines, or false.
bool Describe(const Scope& s, const std::vector<std::vector<Output>>& lists, const Batching& how, InputQueue* queue) {
  if (lists.empty() || lists[0].empty()) {
    s.UpdateStatus(InvalidArgument(s.prefix(), ": there are no tensors to make batches of"));
    return false;
  }
  for (size_t i = 0; s.ok() && i < lists.size(); ++i) {
    if (lists[i].size() != lists[0].size()) {
      s.UpdateStatus(InvalidArgument(s.prefix(), ": the first list has ", lists[0].size(), " tensors, list ", i, " ",
                                     lists[i].size()));
      return false;
    }
    for (size_t j = 0; j < lists[i].size(); ++j) {
      const Output& tensor = lists[i][j];
      const PartialShape shape = how.enqueue_many ? WithoutFirst(tensor.shape()) : tensor.shape();
      if (tensor.empty() || !(how.any_shape ? shape.known_rank() : shape.IsFullyDefined()) ||
          (how.enqueue_many && tensor.shape().known_rank() && tensor.shape().rank() == 0)) {
        s.UpdateStatus(InvalidArgument(s.prefix(), ": the shape of an example must be known, but ", tensor.name(),
                                       " has ", tensor.shape().ToString()));
        return false;
      }
      if (i == 0) {
        queue->types.push_back(tensor.dtype());
        queue->shapes.push_back(shape);
      } else if (tensor.dtype() != queue->types[j] || !shape.IsCompatibleWith(queue->shapes[j])) {
        s.UpdateStatus(InvalidArgument(s.prefix(), ": ", tensor.name(), " is ", tensor.dtype(), shape.ToString(),
                                       ", but that of the first list ", queue->types[j], queue->shapes[j].ToString()));
        return false;
      } else if (shape != queue->shapes[j]) {
        // Only what all have in common is known.
        for (int d = 0; d < shape.rank(); ++d) {
          if (shape.dim(d) != queue->shapes[j].dim(d)) queue->shapes[j].set_dim(d, -1);
        }
      }
    }
  }
  return s.ok();
}

std::vector<Output> MakeBatches(const Scope& s, const std::vector<std::vector<Output>>& lists, int64_t batch_size,
                                Batching how) {
  InputQueue queue;
  if (!IsPositive(s, "the batch size", batch_size) || !IsPositive(s, "the capacity", how.capacity) ||
      !IsPositive(s, "the number of threads", how.num_threads) || !Describe(s, lists, how, &queue)) {
    return {};
  }
  how.attrs.insert(how.attrs.end(),
                   {{"component_types", queue.types}, {"shapes", queue.shapes}, {"capacity", how.capacity}});
  queue.handle = Op(s.WithOpName("queue"), how.queue, {}, std::move(how.attrs));
  std::vector<Operation> enqueue_ops;
  for (const std::vector<Output>& list : lists) {
    const bool selects = !how.keep_input.is_nothing();
    const bool many = how.enqueue_many || selects;
    const std::vector<Output> elements = selects ? KeptRows(s, list, how) : list;
    const Operation enqueue =
        AddOp(s, many ? "QueueEnqueueManyV2" : "QueueEnqueueV2", {queue.handle, InputList(elements)});
    enqueue_ops.insert(enqueue_ops.end(), lists.size() > 1 ? 1 : how.num_threads, enqueue);
  }
  RunQueue(s, queue, std::move(enqueue_ops), how.capacity);
  const Operation dequeue =
      AddOp(s.WithOpName("dequeue"), how.smaller_final ? "QueueDequeueUpToV2" : "QueueDequeueManyV2",
            {queue.handle, static_cast<int32_t>(batch_size)}, {{"component_types", queue.types}});
  std::vector<Output> batch;
  for (size_t i = 0; s.ok() && i < queue.types.size(); ++i) {
    batch.push_back(WithShape(s, dequeue.output(static_cast<int>(i)),
                              WithFirst(how.smaller_final ? -1 : batch_size, queue.shapes[i])));
  }
  return batch;
}

std::vector<Output> MakeShuffled(const Scope& s, const std::vector<std::vector<Output>>& lists, int64_t batch_size,
                                 int64_t capacity, int64_t min_after_dequeue, const ShuffleBatchOptions& options) {
  if (min_after_dequeue < 0 || min_after_dequeue >= capacity) {
    s.UpdateStatus(InvalidArgument(s.prefix(), ": min_after_dequeue is ", min_after_dequeue,
                                   "; it must be below the capacity, ", capacity));
    return {};
  }
  const auto [seed, seed2] = s.OpSeeds(options.seed);
  return MakeBatches(s, lists, batch_size,
                     {.queue = "RandomShuffleQueueV2",
                      .attrs = {{"min_after_dequeue", min_after_dequeue},
                                {"seed", seed},
                                {"seed2", seed2},
                                {"shared_name", options.shared_name}},
                      .num_threads = options.num_threads,
                      .capacity = capacity,
                      .enqueue_many = options.enqueue_many,
                      .smaller_final = options.allow_smaller_final_batch,
                      .keep_input = options.keep_input});
}

std::vector<Output> MakePlain(const Scope& s, const std::vector<std::vector<Output>>& lists, int64_t batch_size,
                              const BatchOptions& options) {
  return MakeBatches(s, lists, batch_size,
                     {.queue = options.dynamic_pad ? "PaddingFIFOQueueV2" : "FIFOQueueV2",
                      .attrs = {{"shared_name", options.shared_name}},
                      .num_threads = options.num_threads,
                      .capacity = options.capacity,
                      .enqueue_many = options.enqueue_many,
                      .any_shape = options.dynamic_pad,
                      .smaller_final = options.allow_smaller_final_batch,
                      .keep_input = options.keep_input});
}

InputQueue Produce(const Scope& s, Output rows, const ProducerOptions& options) {
  InputQueue queue;
  if (!s.ok() || !IsPositive(s, "the capacity", options.capacity)) return queue;
  const PartialShape element = WithoutFirst(rows.shape());
  if (!element.IsFullyDefined() || rows.shape().rank() == 0) {
    s.UpdateStatus(InvalidArgument(s.prefix(), ": the shape of a row must be known, but ", rows.name(), " has ",
                                   rows.shape().ToString()));
    return queue;
  }
  queue.types = {rows.dtype()};
  queue.shapes = {element};
  if (options.shuffle) {
    const auto [seed, seed2] = s.OpSeeds(options.seed);
    rows = Op(s, "RandomShuffle", {rows}, {{"seed", seed}, {"seed2", seed2}});
  }
  if (options.num_epochs) rows = LimitEpochs(s, rows, *options.num_epochs);
  queue.handle = Op(s.WithOpName("queue"), "FIFOQueueV2", {},
                    {{"component_types", queue.types},
                     {"shapes", queue.shapes},
                     {"capacity", options.capacity},
                     {"shared_name", options.shared_name}});
  RunQueue(s, queue, {AddOp(s, "QueueEnqueueManyV2", {queue.handle, InputList{rows}})}, options.capacity);
  return queue;
}

}  // namespace

std::vector<Output> InputQueue::Dequeue(const Scope& scope) const {
  const Scope s = scope.WithoutOpName();
  const Operation dequeue = AddOp(scope.op_name().empty() ? scope.WithOpName("dequeue") : scope, "QueueDequeueV2",
                                  {handle}, {{"component_types", types}});
  std::vector<Output> element;
  for (size_t i = 0; i < types.size(); ++i)
    element.push_back(WithShape(s, dequeue.output(static_cast<int>(i)), shapes[i]));
  return element;
}

Output InputQueue::Size(const Scope& scope) const { return Op(scope, "QueueSizeV2", {handle}); }

Output LimitEpochs(const Scope& scope, const Input& tensor, int64_t num_epochs) {
  const Scope s = scope.ForComposite("limit_epochs");
  const Output given = tensor.In(s);
  if (!s.ok() || !IsPositive(s, "the number of epochs", num_epochs)) return given;
  const Var epochs(s, "epochs", Shape(), init::Zeros(), {.dtype = DType::kInt64, .local = true});
  const Output counted = Op(s, "ResourceCountUpTo", {epochs.handle()}, {{"limit", num_epochs}, {"T", DType::kInt64}});
  return Op(s.WithControlDependencies({counted.op()}), "Identity", {given});
}

InputQueue InputProducer(const Scope& scope, const Input& rows, const ProducerOptions& options) {
  const Scope s = scope.ForComposite("input_producer");
  return Produce(s, rows.In(s), options);
}

InputQueue StringInputProducer(const Scope& scope, const Input& strings, const ProducerOptions& options) {
  const Scope s = scope.ForComposite("string_input_producer");
  const Output given = strings.In(s, DType::kString);
  if (s.ok() && (given.dtype() != DType::kString || given.shape().rank() != 1 || given.shape().dim(0) == 0)) {
    s.UpdateStatus(InvalidArgument(s.prefix(), ": needs a vector of strings that is not empty, not ", given.dtype(),
                                   given.shape().ToString()));
  }
  return Produce(s, given, options);
}

InputQueue RangeInputProducer(const Scope& scope, const Input& limit, const ProducerOptions& options) {
  const Scope s = scope.ForComposite("input_producer");
  return Produce(s, Op(s, "Range", {0, limit, 1}), options);
}

std::vector<Output> SliceInputProducer(const Scope& scope, const std::vector<Output>& tensors,
                                       const ProducerOptions& options) {
  const Scope s = scope.ForComposite("slice_input_producer");
  if (tensors.empty()) s.UpdateStatus(InvalidArgument(s.prefix(), ": there are no tensors"));
  for (const Output& tensor : tensors) {
    const PartialShape shape = tensor.shape(), first = tensors[0].shape();
    if (shape.known_rank() && (shape.rank() == 0 || (first.known_rank() && first.dim(0) >= 0 && shape.dim(0) >= 0 &&
                                                     shape.dim(0) != first.dim(0)))) {
      s.UpdateStatus(InvalidArgument(s.prefix(), ": ", tensor.name(), " of shape ", shape.ToString(),
                                     " does not have as many rows as ", tensors[0].name(), " of shape ",
                                     first.ToString()));
    }
  }
  if (!s.ok()) return {};
  const InputQueue rows = RangeInputProducer(s, FirstDim(s, tensors[0]), options);
  const std::vector<Output> row = rows.Dequeue(s);
  std::vector<Output> slices;
  for (size_t i = 0; s.ok() && i < tensors.size(); ++i) slices.push_back(Op(s, "GatherV2", {tensors[i], row[0], 0}));
  return slices;
}

std::vector<Output> Batch(const Scope& scope, const std::vector<Output>& tensors, int64_t batch_size,
                          const BatchOptions& options) {
  return MakePlain(scope.ForComposite("batch"), {tensors}, batch_size, options);
}
std::vector<Output> BatchJoin(const Scope& scope, const std::vector<std::vector<Output>>& tensors, int64_t batch_size,
                              const BatchOptions& options) {
  return MakePlain(scope.ForComposite("batch_join"), tensors, batch_size, options);
}
std::vector<Output> ShuffleBatch(const Scope& scope, const std::vector<Output>& tensors, int64_t batch_size,
                                 int64_t capacity, int64_t min_after_dequeue, const ShuffleBatchOptions& options) {
  return MakeShuffled(scope.ForComposite("shuffle_batch"), {tensors}, batch_size, capacity, min_after_dequeue, options);
}
std::vector<Output> ShuffleBatchJoin(const Scope& scope, const std::vector<std::vector<Output>>& tensors,
                                     int64_t batch_size, int64_t capacity, int64_t min_after_dequeue,
                                     const ShuffleBatchOptions& options) {
  return MakeShuffled(scope.ForComposite("shuffle_batch_join"), tensors, batch_size, capacity, min_after_dequeue,
                      options);
}

}  // namespace millrace::queues
