// The four kinds of queues. They differ in which element comes out next and in how a batch is made.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "millrace/base/mutex.h"
#include "millrace/ops/data_flow/tuple_store.h"
#include "millrace/runtime/queue.h"

namespace millrace {

class TupleQueue : public Queue {
 public:
  enum class Kind { kFifo, kRandomShuffle, kPaddingFifo, kPriority };

  struct Options {
    Kind kind = Kind::kFifo;
    std::string name;
    int64_t capacity = 0;
    std::vector<DType> types;
    // One per type, or empty: then elements may have different shapes and cannot be dequeued in batches.
    std::vector<PartialShape> shapes;
    // For a shuffling queue: the minimum number of elements that stay until it is closed, to choose from.
    int64_t min_after_dequeue = 0;
    int64_t seed = 0;
    int64_t seed2 = 0;
  };

  // INVALID_ARGUMENT if the options contradict each other.
  static StatusOr<RefPtr<Queue>> Make(Options options);

  // INVALID_ARGUMENT if this queue was created with other options.
  Status CheckSame(const Options& wanted) const;

  const std::vector<DType>& types() const override { return options_.types; }
  void Enqueue(const CallingOp& op, Tuple element, EnqueueDone done) override;
  void EnqueueMany(const CallingOp& op, Tuple rows, EnqueueDone done) override;
  void Dequeue(const CallingOp& op, DequeueDone done) override;
  void DequeueMany(const CallingOp& op, int64_t n, bool allow_fewer, DequeueDone done) override;
  void Close(const CallingOp& op, bool cancel_enqueues, EnqueueDone done) override;
  bool is_closed() const override;
  int64_t size() const override;
  std::string DebugString() const override;

 private:
  struct Taken;

  explicit TupleQueue(Options options);

  Status CheckElement(const Tuple& element) const;
  Status CheckRows(const Tuple& rows) const;
  // Row i as an element.
  Tuple Element(const Tuple& rows, int64_t i) const;
  StatusOr<Tuple> Batch(const std::vector<Tuple>& elements, Allocator* allocator) const;
  Status TooFew(int64_t wanted) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  Progress TryEnqueue(const Tuple& rows, int64_t* next, int64_t n, Status* result) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Progress TryDequeue(Taken* taken, Status* result) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // `taken` holds the elements that a dequeue has so far.
  void Submit(bool enqueues, Attempt attempt, const std::shared_ptr<Taken>& taken = nullptr);
  // Describes a waiting op for the list of waits.
  void Describe(const Taken* taken, Wait* wait) const;
  void Cancel(bool enqueues, int64_t id);
  void Flush(FinishedOps* finished) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Options options_;
  const std::string label_;  // "FIFOQueue 'name'"

  mutable Mutex mu_;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  const std::unique_ptr<TupleStore> store_ ABSL_PT_GUARDED_BY(mu_);
  WaitingLine enqueues_ ABSL_GUARDED_BY(mu_);  // includes pending closes
  WaitingLine dequeues_ ABSL_GUARDED_BY(mu_);
};

const char* KindName(TupleQueue::Kind kind);  // "FIFOQueue"

}  // namespace millrace
