// The interface of queues of tensor tuples.
#pragma once

#include <vector>

#include "absl/functional/any_invocable.h"
#include "millrace/runtime/blocked_ops.h"
#include "millrace/runtime/resource_manager.h"

namespace millrace {

// Thread-safe. All calls are non-blocking: `done` is called exactly once, possibly before the call returns, possibly on
// another thread, and never with a lock held. Ops of one kind are served in FIFO order. A waiting op ends when its step
// is cancelled.
class Queue : public Resource {
 public:
  static constexpr char kTypeName[] = "tensorflow::QueueInterface";

  using Tuple = std::vector<Tensor>;
  using EnqueueDone = absl::AnyInvocable<void(Status)>;
  using DequeueDone = absl::AnyInvocable<void(StatusOr<Tuple>)>;

  // The types of an element's components.
  virtual const std::vector<DType>& types() const = 0;

  // CANCELLED if the queue is closed, INVALID_ARGUMENT if the tuple does not match the queue's types and shapes.
  virtual void Enqueue(const CallingOp& op, Tuple element, EnqueueDone done) = 0;
  // Each row of the first dimension is an element. Rows are enqueued as capacity allows.
  virtual void EnqueueMany(const CallingOp& op, Tuple rows, EnqueueDone done) = 0;

  // OUT_OF_RANGE if the queue is closed and has too few elements.
  virtual void Dequeue(const CallingOp& op, DequeueDone done) = 0;
  // Dequeues `n` elements, stacked along a new first dimension. With `allow_fewer`, the remaining elements of a closed
  // queue suffice if there is at least one.
  virtual void DequeueMany(const CallingOp& op, int64_t n, bool allow_fewer, DequeueDone done) = 0;

  // Closes the queue to new elements. Pending enqueues complete first, or are cancelled if `cancel_enqueues`.
  virtual void Close(const CallingOp& op, bool cancel_enqueues, EnqueueDone done) = 0;
  virtual bool is_closed() const = 0;
  virtual int64_t size() const = 0;
};

}  // namespace millrace
