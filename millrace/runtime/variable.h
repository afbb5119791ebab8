// A tensor that outlives steps: behind VariableV2 and VarHandleOp alike.
#pragma once

#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "millrace/base/mutex.h"
#include "millrace/base/shared_mutex.h"
#include "millrace/runtime/row_locks.h"
#include "millrace/tensor/resource_handle.h"
#include "millrace/tensor/tensor.h"

namespace millrace {

// Readers get a snapshot that no later update changes: a dense update writes in place when nobody else
// holds the memory, and otherwise into a spare buffer that it swaps in.
//
// From its first update by rows until the next dense update the variable is sparse: its memory is its own,
// updates by rows write into it at the same time, each row under its stripe's lock, and a snapshot is a copy
// that is whole row by row. Readers of single rows (ReadRows) need no snapshot in either state. Thread-safe.
class Variable : public Resource {
 public:
  Variable(std::string name, DType dtype, PartialShape shape)
      : name_(std::move(name)), dtype_(dtype), declared_shape_(std::move(shape)) {}

  const std::string& name() const { return name_; }
  DType dtype() const { return dtype_; }
  const PartialShape& declared_shape() const { return declared_shape_; }

  bool IsInitialized() const;
  // FAILED_PRECONDITION names the variable when it has no value yet.
  StatusOr<Tensor> Read() const;
  // The shape of the value, without reading it.
  StatusOr<Shape> ShapeOfValue() const;
  // Calls fn on the memory itself, where updates by rows may be at work: fn looks at a row only while it
  // holds that row's stripe (RowLayout says which) and keeps nothing of `value`. Dense updates do not show.
  Status ReadRows(absl::FunctionRef<Status(const Tensor& value, RowLocks& locks)> fn) const;
  // Replaces the value. The tensor is shared, not copied: the caller no longer writes to it.
  // INVALID_ARGUMENT when it does not fit the declared type, or, unless `validate_shape` is false, shape.
  Status Assign(Tensor value, bool validate_shape = true);

  // Calls fn(old, new): both have the variable's shape and may be the same memory. Element i of `new`
  // may depend on element i of `old` alone. Serialised with other updates of this variable. fn must not
  // touch the variable otherwise; it checks before it writes, as what it wrote before an error may stay.
  // A variable in a device's memory takes that device's allocator, and an fn that enqueues on its stream.
  Status UpdateDense(absl::FunctionRef<Status(const Tensor& old_value, Tensor* new_value)> fn,
                     Allocator* allocator = Allocator::Heap());
  // Like UpdateDense over several variables at once (an optimizer's slots), locked in a fixed order so
  // that two updates cannot deadlock. old_values[i] belongs to variables[i]. INVALID_ARGUMENT when one
  // variable is in the list twice.
  static Status UpdateDense(
      absl::Span<Variable* const> variables,
      absl::FunctionRef<Status(absl::Span<const Tensor> old_values, absl::Span<Tensor> new_values)> fn);
  // Calls fn on the memory of the variables, which no snapshot shares, while other updates by rows may be at
  // work on it: fn touches a row only while it holds the row's stripe in locks[i], of each variable
  // whose row it touches in the order of `order` (indices into `variables`). Dense updates wait.
  struct Rows {
    absl::Span<Tensor> values;
    absl::Span<RowLocks* const> locks;
    absl::Span<const int> order;
  };
  static Status UpdateRows(absl::Span<Variable* const> variables,
                           absl::FunctionRef<Status(const Rows& rows)> fn);
  // Calls fn(value) on memory that holds the current value and that no reader shares (it is copied
  // first when one does): for updates of places that are no rows.
  static Status UpdateInPlace(absl::Span<Variable* const> variables,
                              absl::FunctionRef<Status(absl::Span<Tensor> values)> fn);

  std::string DebugString() const override;

 private:
  class Locks;
  Status NotInitialized() const;
  // Memory for a new value: the spare when it is free.
  StatusOr<Tensor> TakeSpare(const Tensor& like, Allocator* allocator = Allocator::Heap())
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(update_mu_);
  // Makes the memory the variable's own, by a copy when it is shared.
  Status BecomeSparse() ABSL_EXCLUSIVE_LOCKS_REQUIRED(update_mu_);
  // The value and, when it is sparse, the locks of its rows.
  StatusOr<Tensor> Peek(bool* sparse) const;
  // After an update in place: lets go of a spare that has not been needed for a while.
  void AgeSpare() ABSL_EXCLUSIVE_LOCKS_REQUIRED(update_mu_);
  // Makes `next` the value and the value before, `old`, the spare.
  void Swap(Tensor old, Tensor next) ABSL_EXCLUSIVE_LOCKS_REQUIRED(update_mu_);
  static Status UpdateAll(
      absl::Span<Variable* const> variables, bool copy,
      absl::FunctionRef<Status(absl::Span<const Tensor> old_values, absl::Span<Tensor> new_values)> fn);

  const std::string name_;
  const DType dtype_;
  const PartialShape declared_shape_;

  // Held for the whole of an update, shared by updates by rows of a sparse variable; never by readers.
  mutable SharedMutex update_mu_;
  Tensor spare_ ABSL_GUARDED_BY(update_mu_);
  int spare_age_ ABSL_GUARDED_BY(update_mu_) = 0;
  // Held to look at or swap the value, and for an update in place. Taken after update_mu_.
  mutable Mutex value_mu_;
  Tensor value_ ABSL_GUARDED_BY(value_mu_);
  // Changed only by who holds update_mu_ alone. True: no snapshot shares the value's memory.
  bool sparse_ ABSL_GUARDED_BY(value_mu_) = false;
  // Of the rows of the value. Taken after the others.
  const std::unique_ptr<RowLocks> row_locks_ = std::make_unique<RowLocks>();
};

}  // namespace millrace
