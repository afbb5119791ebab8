#include "millrace/ops/data_flow/tuple_queue.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_join.h"
#include "millrace/ops/data_flow/rows.h"

namespace millrace {
namespace {

constexpr char kEnqueueCancelled[] = "Enqueue operation was cancelled";
constexpr char kDequeueCancelled[] = "Dequeue operation was cancelled";
constexpr char kCloseCancelled[] = "Close operation was cancelled";

std::string TypesText(const std::vector<DType>& types) {
  return absl::StrJoin(types, ", ", [](std::string* out, DType t) { out->append(DTypeName(t)); });
}

std::string ShapesText(const std::vector<PartialShape>& shapes) {
  return absl::StrCat(
      "[", absl::StrJoin(shapes, ",", [](std::string* out, const PartialShape& s) { out->append(s.ToString()); }), "]");
}

// Synchronous training, TensorFlow's and ours, calls its queue of tokens so, and nothing else in a graph tells it from
// other queues.
constexpr absl::string_view kTokenQueue = "sync_token_q";

ResourceKind KindOfWaits(absl::string_view name) {
  const absl::string_view own = name.substr(name.rfind('/') + 1);  // without the scopes before it
  return own == kTokenQueue ? ResourceKind::kTokenQueue : ResourceKind::kQueue;
}

// The first component of an element of a priority queue is its priority.
void SortByPriority(std::vector<Queue::Tuple>* elements) {
  std::stable_sort(elements->begin(), elements->end(), [](const Queue::Tuple& a, const Queue::Tuple& b) {
    return a[0].scalar<int64_t>() < b[0].scalar<int64_t>();
  });
}

std::unique_ptr<TupleStore> StoreFor(const TupleQueue::Options& options) {
  switch (options.kind) {
    case TupleQueue::Kind::kRandomShuffle:
      return TupleStore::Shuffled(options.seed, options.seed2);
    case TupleQueue::Kind::kPriority:
      return TupleStore::ByPriority();
    default:
      return TupleStore::Fifo();
  }
}

}  // namespace

const char* KindName(TupleQueue::Kind kind) {
  switch (kind) {
    case TupleQueue::Kind::kFifo:
      return "FIFOQueue";
    case TupleQueue::Kind::kRandomShuffle:
      return "RandomShuffleQueue";
    case TupleQueue::Kind::kPaddingFifo:
      return "PaddingFIFOQueue";
    case TupleQueue::Kind::kPriority:
      return "PriorityQueue";
  }
  return "Queue";
}

// Elements taken by a dequeue in progress.
struct TupleQueue::Taken {
  int64_t wanted = 1;
  bool allow_fewer = false;
  std::vector<Tuple> elements;
  // Their number, guarded by the queue's lock; the elements belong to the op once it is done.
  int64_t held = 0;
};

TupleQueue::TupleQueue(Options options)
    : options_(std::move(options)),
      label_(absl::StrCat(KindName(options_.kind), " '", options_.name, "'")),
      store_(StoreFor(options_)),
      enqueues_(label_, KindOfWaits(options_.name)),
      dequeues_(label_, KindOfWaits(options_.name)) {}

StatusOr<RefPtr<Queue>> TupleQueue::Make(Options options) {
  const size_t n = options.types.size();
  const bool pads = options.kind == Kind::kPaddingFifo;
  if (pads && options.shapes.size() != n) {
    return InvalidArgument("Shapes must be provided for all components, but received ", n, " dtypes and ",
                           options.shapes.size(), " shapes.");
  }
  if (!options.shapes.empty() && options.shapes.size() != n) {
    return InvalidArgument("Different number of component types.  Types: ", TypesText(options.types),
                           ", Shapes: ", ShapesText(options.shapes));
  }
  for (const PartialShape& shape : options.shapes) {
    if (!shape.known_rank() && pads) return InvalidArgument("shape ", shape.ToString(), " must have known rank.");
    if (!shape.IsFullyDefined() && !pads) return InvalidArgument("Shape ", shape.ToString(), " is not fully defined");
  }
  for (DType type : options.types) {
    if (!IsKnown(type)) return InvalidArgument("a queue cannot hold ", DTypeName(type));
  }
  if (options.kind == Kind::kRandomShuffle) {
    if (options.min_after_dequeue < 0) {
      return InvalidArgument("min_after_dequeue ", options.min_after_dequeue, " must be >= 0");
    }
    if (options.min_after_dequeue >= options.capacity) {
      return InvalidArgument("min_after_dequeue ", options.min_after_dequeue, " must be < capacity ", options.capacity);
    }
  }
  return RefPtr<Queue>(AdoptRef(new TupleQueue(std::move(options))));
}

Status TupleQueue::CheckSame(const Options& wanted) const {
  const auto differs = [this](const char* what, const auto& has, const auto& asked, const char* were) {
    return InvalidArgument("Shared queue '", options_.name, "' has ", what, " ", has, " but requested ", what, " ",
                           were, " ", asked);
  };
  if (options_.kind != wanted.kind) {
    return InvalidArgument("Shared queue '", options_.name, "' is a ", KindName(options_.kind), ", not a ",
                           KindName(wanted.kind));
  }
  if (options_.capacity != wanted.capacity) return differs("capacity", options_.capacity, wanted.capacity, "was");
  if (options_.types != wanted.types) {
    return differs("component types", TypesText(options_.types), TypesText(wanted.types), "were");
  }
  if (options_.shapes != wanted.shapes) {
    return differs("component shapes", ShapesText(options_.shapes), ShapesText(wanted.shapes), "were");
  }
  if (options_.min_after_dequeue != wanted.min_after_dequeue) {
    return differs("min_after_dequeue", options_.min_after_dequeue, wanted.min_after_dequeue, "was");
  }
  // A node without seeds takes any.
  if ((wanted.seed != 0 || wanted.seed2 != 0) && (options_.seed != wanted.seed || options_.seed2 != wanted.seed2)) {
    return InvalidArgument("Shared queue '", options_.name, "' has random seeds (", options_.seed, ", ", options_.seed2,
                           ") but requested seeds are (", wanted.seed, ", ", wanted.seed2, ").");
  }
  return absl::OkStatus();
}

Status TupleQueue::CheckElement(const Tuple& element) const {
  if (element.size() != options_.types.size()) {
    return InvalidArgument("Wrong number of components in tuple. Expected ", options_.types.size(), ", got ",
                           element.size());
  }
  for (size_t i = 0; i < element.size(); ++i) {
    if (element[i].dtype() != options_.types[i]) {
      return InvalidArgument("Type mismatch in tuple component ", i, ". Expected ", options_.types[i], ", got ",
                             element[i].dtype());
    }
    if (!options_.shapes.empty() && !options_.shapes[i].IsCompatibleWith(element[i].shape())) {
      return InvalidArgument("Shape mismatch in tuple component ", i, ". Expected ", options_.shapes[i].ToString(),
                             ", got ", element[i].shape().ToString());
    }
  }
  return absl::OkStatus();
}

Status TupleQueue::CheckRows(const Tuple& rows) const {
  if (rows.size() != options_.types.size()) {
    return InvalidArgument("Wrong number of components in tuple. Expected ", options_.types.size(), ", got ",
                           rows.size());
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].dtype() != options_.types[i]) {
      return InvalidArgument("Type mismatch in tuple component ", i, ". Expected ", options_.types[i], ", got ",
                             rows[i].dtype());
    }
    if (rows[i].rank() == 0) {
      return InvalidArgument("Shape mismatch in tuple component ", i,
                             ". Expected a first dimension of elements, got []");
    }
    if (rows[i].dim(0) != rows[0].dim(0)) {
      return InvalidArgument("All input tensors must have the same size in the 0th dimension. Component ", i, " has ",
                             rows[i].dim(0), ", and should have ", rows[0].dim(0));
    }
    if (options_.shapes.empty()) continue;
    const Shape each(rows[i].shape().dims().subspan(1));
    if (!options_.shapes[i].IsCompatibleWith(each)) {
      PartialShape expected({rows[i].dim(0)});
      for (const int64_t d : options_.shapes[i].dims()) expected.AddDim(d);
      return InvalidArgument("Shape mismatch in tuple component ", i, ". Expected ", expected.ToString(), ", got ",
                             rows[i].shape().ToString());
    }
  }
  return absl::OkStatus();
}

TupleQueue::Tuple TupleQueue::Element(const Tuple& rows, int64_t i) const {
  // Elements of FIFO queues share the memory of their batch; in other queues one element could keep the whole batch
  // alive for long.
  const bool shares = options_.kind == Kind::kFifo || options_.kind == Kind::kPaddingFifo;
  Tuple element;
  element.reserve(rows.size());
  for (const Tensor& component : rows) {
    element.push_back(shares ? component.Row(i) : component.Row(i).Clone());
  }
  return element;
}

StatusOr<TupleQueue::Tuple> TupleQueue::Batch(const std::vector<Tuple>& elements, Allocator* allocator) const {
  Tuple batch;
  std::vector<const Tensor*> rows(elements.size());
  for (size_t c = 0; c < options_.types.size(); ++c) {
    for (size_t i = 0; i < elements.size(); ++i) rows[i] = &elements[i][c];
    StatusOr<Tensor> component = options_.kind == Kind::kPaddingFifo
                                     ? StackPadded(options_.types[c], options_.shapes[c], rows, allocator)
                                     : StackRows(options_.types[c], options_.shapes[c].AsShape(), rows, allocator);
    if (!component.ok()) return component.status();
    batch.push_back(*std::move(component));
  }
  return batch;
}

Status TupleQueue::TooFew(int64_t wanted) const {
  return OutOfRange(label_, " is closed and has insufficient elements (requested ", wanted, ", current size ",
                    store_->size(), ")");
}

Progress TupleQueue::TryEnqueue(const Tuple& rows, int64_t* next, int64_t n, Status* result) {
  if (closed_) {
    *result = Cancelled(label_, " is closed.");
    return Progress::kDone;
  }
  Progress progress = Progress::kNone;
  while (store_->size() < options_.capacity) {
    store_->Push(Element(rows, *next));
    progress = Progress::kSome;
    if (++*next == n) return Progress::kDone;
  }
  return progress;
}

Progress TupleQueue::TryDequeue(Taken* taken, Status* result) {
  int64_t left = taken->wanted - static_cast<int64_t>(taken->elements.size());
  if (closed_ && store_->size() < left) {
    store_->PutBack(std::exchange(taken->elements, {}));
    taken->held = 0;
    if (!taken->allow_fewer || store_->size() == 0) {
      *result = TooFew(left);
      return Progress::kDone;
    }
    left = taken->wanted = store_->size();
  }
  const int64_t available = store_->size() - (closed_ ? 0 : options_.min_after_dequeue);
  const int64_t n = std::min(available, left);
  if (n <= 0) return Progress::kNone;
  const bool in_order = options_.kind == Kind::kPriority;
  // A batch of a priority queue is in order, so it is taken when it is whole, if the queue can ever hold so many.
  if (in_order && n < left && taken->wanted <= options_.capacity) return Progress::kNone;
  taken->elements.reserve(taken->elements.size() + static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) taken->elements.push_back(store_->Pop());
  taken->held += n;
  if (n < left) return Progress::kSome;
  if (in_order && taken->held > n) SortByPriority(&taken->elements);
  return Progress::kDone;
}

void TupleQueue::Enqueue(const CallingOp& op, Tuple element, EnqueueDone done) {
  if (Status fits = CheckElement(element); !fits.ok()) return done(fits);
  Attempt attempt(op, "room in");
  attempt.kind = Wait::Kind::kRoom;
  attempt.run = [this, element = std::move(element)](Status* result) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) mutable {
    if (closed_) {
      *result = Cancelled(label_, " is closed.");
      return Progress::kDone;
    }
    if (store_->size() >= options_.capacity) return Progress::kNone;
    store_->Push(std::move(element));
    return Progress::kDone;
  };
  attempt.cancelled = kEnqueueCancelled;
  attempt.done = std::move(done);
  Submit(/*enqueues=*/true, std::move(attempt));
}

void TupleQueue::EnqueueMany(const CallingOp& op, Tuple rows, EnqueueDone done) {
  if (Status fits = CheckRows(rows); !fits.ok()) return done(fits);
  const int64_t n = rows[0].dim(0);
  if (n == 0) return FinishNow(op, std::move(done));
  Attempt attempt(op, "room in");
  attempt.kind = Wait::Kind::kRoom;
  attempt.run = [this, rows = std::move(rows), next = int64_t{0}, n](Status* result)
                    ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) mutable { return TryEnqueue(rows, &next, n, result); };
  attempt.cancelled = kEnqueueCancelled;
  attempt.done = std::move(done);
  Submit(/*enqueues=*/true, std::move(attempt));
}

void TupleQueue::Dequeue(const CallingOp& op, DequeueDone done) {
  auto taken = std::make_shared<Taken>();
  Attempt attempt(op, "elements of");
  attempt.run = [this, taken](Status* result)
                    ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return TryDequeue(taken.get(), result); };
  attempt.cancelled = kDequeueCancelled;
  attempt.done = [taken, done = std::move(done)](Status status) mutable {
    if (!status.ok()) return done(std::move(status));
    Tuple& element = taken->elements[0];
    // A row of a batch may be unaligned; copy it for the kernels.
    for (Tensor& component : element) {
      if (!component.IsAligned()) component = component.Clone();
    }
    done(std::move(element));
  };
  Submit(/*enqueues=*/false, std::move(attempt), taken);
}

void TupleQueue::DequeueMany(const CallingOp& op, int64_t n, bool allow_fewer, DequeueDone done) {
  if (options_.shapes.empty()) {
    return done(InvalidArgument(KindName(options_.kind),
                                "'s DequeueMany and DequeueUpTo require the components to have specified shapes."));
  }
  if (n < 0) return done(InvalidArgument(label_, ": cannot dequeue ", n, " elements"));
  if (n == 0) {
    return FinishNow(
        op, [nothing = Batch({}, op.allocator), done = std::move(done)](Status) mutable { done(std::move(nothing)); });
  }
  auto taken = std::make_shared<Taken>();
  taken->wanted = n;
  // A priority queue returns whole batches only, as in TensorFlow.
  taken->allow_fewer = allow_fewer && options_.kind != Kind::kPriority;
  Attempt attempt(op, "elements of");
  attempt.run = [this, taken](Status* result)
                    ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return TryDequeue(taken.get(), result); };
  attempt.undo = [this, taken]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    store_->PutBack(std::exchange(taken->elements, {}));
    taken->held = 0;
  };
  attempt.cancelled = kDequeueCancelled;
  attempt.done = [self = ShareRef(this), taken, allocator = op.allocator,
                  done = std::move(done)](Status status) mutable {
    if (!status.ok()) return done(std::move(status));
    done(self->Batch(taken->elements, allocator));
  };
  Submit(/*enqueues=*/false, std::move(attempt), taken);
}

void TupleQueue::Close(const CallingOp& op, bool cancel_enqueues, EnqueueDone done) {
  if (!cancel_enqueues) {
    Attempt attempt(op, "enqueues before the closing of");
    attempt.run = [this](Status* result) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      if (closed_) *result = Cancelled("Queue '", options_.name, "' is already closed.");
      closed_ = true;
      return Progress::kDone;
    };
    attempt.cancelled = kCloseCancelled;
    attempt.kind = Wait::Kind::kRoom;
    attempt.done = std::move(done);
    return Submit(/*enqueues=*/true, std::move(attempt));
  }
  FinishedOps finished(op.step);
  op.Change([&] {
    MutexLock lock(&mu_);
    closed_ = true;
    enqueues_.FailAll(absl::CancelledError(kEnqueueCancelled), &finished);
    Flush(&finished);
  });
  finished.Tell(nullptr);
  FinishNow(op, std::move(done));
}

bool TupleQueue::is_closed() const {
  MutexLock lock(&mu_);
  return closed_;
}

int64_t TupleQueue::size() const {
  MutexLock lock(&mu_);
  return store_->size();
}

std::string TupleQueue::DebugString() const {
  MutexLock lock(&mu_);
  return absl::StrCat(label_, " of ", TypesText(options_.types), ": ", store_->size(), " of ", options_.capacity,
                      " elements, ", enqueues_.size(), " enqueues and ", dequeues_.size(), " dequeues waiting",
                      closed_ ? ", closed" : "");
}

void TupleQueue::Describe(const Taken* taken, Wait* wait) const {
  MutexLock lock(&mu_);
  const bool bounded = options_.capacity < std::numeric_limits<int32_t>::max();
  const std::string fill =
      absl::StrCat(" (", store_->size(), bounded ? absl::StrCat(" of ", options_.capacity) : "", " elements)");
  if (taken == nullptr) {
    wait->what += fill;
    wait->has = store_->size();
    wait->needs = options_.capacity;
    return;
  }
  wait->needs = taken->wanted;
  wait->has = taken->held + std::max<int64_t>(0, store_->size() - (closed_ ? 0 : options_.min_after_dequeue));
  wait->what = absl::StrCat(taken->wanted, taken->wanted == 1 ? " element of " : " elements of ", label_, fill);
  if (taken->held > 0) absl::StrAppend(&wait->what, ", of which it has ", taken->held);
  if (options_.min_after_dequeue > 0) {
    absl::StrAppend(&wait->what, "; ", options_.min_after_dequeue, " stay until it is closed");
  }
}

void TupleQueue::Submit(bool enqueues, Attempt attempt, const std::shared_ptr<Taken>& taken) {
  const CallingOp op = attempt.op;
  FinishedOps finished(op.step);
  op.Change([&] {
    MutexLock lock(&mu_);
    WaitingLine& line = enqueues ? enqueues_ : dequeues_;
    const bool changed = line.Join(
        std::move(attempt), &finished,
        [&](int64_t id) { return [self = ShareRef(this), enqueues, id] { self->Cancel(enqueues, id); }; },
        [&] { return [self = ShareRef(this), taken](Wait* wait) { self->Describe(taken.get(), wait); }; });
    if (changed) Flush(&finished);
  });
  finished.Tell(op.step);
}

void TupleQueue::Cancel(bool enqueues, int64_t id) {
  FinishedOps finished;
  {
    MutexLock lock(&mu_);
    if (!(enqueues ? enqueues_ : dequeues_).Cancel(id, &finished)) return;
    Flush(&finished);
  }
  finished.Tell(nullptr);
}

void TupleQueue::Flush(FinishedOps* finished) {
  // Enqueues and dequeues may enable each other.
  bool changed = true;
  while (changed) {
    changed = enqueues_.Advance(finished);
    changed |= dequeues_.Advance(finished);
  }
}

}  // namespace millrace
