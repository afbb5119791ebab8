// A queue of tuples of tensors, as ops see it.
#pragma once

#include <vector>

#include "absl/functional/any_invocable.h"
#include "millrace/runtime/blocked_ops.h"
#include "millrace/runtime/resource_manager.h"

namespace millrace {

// Thread-safe. Nothing blocks: `done` is called exactly once, perhaps before the call returns,
// perhaps on another thread, and never with a lock held. Ops of one kind are served in the order
// they came. What waits ends when the op's step is cancelled.
class Queue : public Resource {
 public:
  static constexpr char kTypeName[] = "tensorflow::QueueInterface";

  using Tuple = std::vector<Tensor>;
  using EnqueueDone = absl::AnyInvocable<void(Status)>;
  using DequeueDone = absl::AnyInvocable<void(StatusOr<Tuple>)>;

  // Of the components of an element.
  virtual const std::vector<DType>& types() const = 0;

  // CANCELLED when the queue is closed, INVALID_ARGUMENT when the tuple does not fit.
  virtual void Enqueue(const CallingOp& op, Tuple element, EnqueueDone done) = 0;
  // Each row of the first dimension is an element. Rows go in as there is room.
  virtual void EnqueueMany(const CallingOp& op, Tuple rows, EnqueueDone done) = 0;

  // OUT_OF_RANGE when the queue is closed and has too few elements.
  virtual void Dequeue(const CallingOp& op, DequeueDone done) = 0;
  // `n` elements stacked along a new first dimension. With `allow_fewer`, what is left of a closed
  // queue will do, if it is anything at all.
  virtual void DequeueMany(const CallingOp& op, int64_t n, bool allow_fewer, DequeueDone done) = 0;

  // Once the ops that wait to enqueue are done, or with `cancel_enqueues` at once and ending those,
  // refuses more elements.
  virtual void Close(const CallingOp& op, bool cancel_enqueues, EnqueueDone done) = 0;
  virtual bool is_closed() const = 0;
  virtual int64_t size() const = 0;
};

}  // namespace millrace
