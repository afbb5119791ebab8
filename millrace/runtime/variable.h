// Variable: a tensor that outlives steps, used by both VariableV2 and VarHandleOp.
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

// Who updates variables, if that matters: the run has an identity, or updates are logged. A Variable calls Applied with
// its update lock held, before any other update of it.
class VariableUpdate {
 public:
  virtual ~VariableUpdate() = default;
  // `epochs` has the epochs of the updated variables.
  virtual void Applied(absl::Span<const uint64_t> epochs) = 0;

  // A whole new value continues the epoch, because it is part of a run that is applied once.
  bool continues_epoch = false;
  // Row updates of one variable exclude each other, so that Applied is called in their order.
  bool one_at_a_time = false;
};

// Copy-on-write: readers get a snapshot that no later update changes. A dense update writes in place if no snapshot
// shares the memory, and otherwise into a spare buffer that it swaps in.
//
// From its first row update until the next dense update the variable is sparse: no snapshot shares its memory, row
// updates write to it concurrently, each row under its stripe's lock, and a snapshot is a copy that is atomic per row.
// Readers of single rows (ReadRows) need no snapshot in either state.
//
// The same in device memory, where a row update is one piece of work on the device's stream: the stream's order takes
// the place of the rows' locks, and a snapshot lies between two updates. Thread-safe.
class Variable : public Resource {
 public:
  Variable(std::string name, DType dtype, PartialShape shape, bool on_device = false)
      : name_(std::move(name)), dtype_(dtype), declared_shape_(std::move(shape)), on_device_(on_device) {}

  const std::string& name() const { return name_; }
  DType dtype() const { return dtype_; }
  // True if values are in the memory of a device that does not share the host's.
  bool on_device() const { return on_device_; }

  bool IsInitialized() const;
  // FAILED_PRECONDITION, naming the variable, if it is uninitialized.
  StatusOr<Tensor> Read() const;
  // The shape of the value, without reading it.
  StatusOr<Shape> ShapeOfValue() const;
  // Calls fn on the variable's memory, which row updates may modify concurrently: fn must read a row only while it
  // holds that row's stripe (see RowLayout), and must not retain `value`. Dense updates during the call are not
  // visible. Of a value in device memory, fn enqueues the reads on the device's stream and needs no stripes.
  Status ReadRows(absl::FunctionRef<Status(const Tensor& value, RowLocks& locks)> fn) const;
  // Replaces the value. The tensor is shared, not copied, so the caller must not write to it afterwards.
  // INVALID_ARGUMENT if it does not match the declared type or, unless `validate_shape` is false, shape.
  Status Assign(Tensor value, bool validate_shape = true, VariableUpdate* by = nullptr);

  // A new one begins when the variable gets a whole value from outside the training (initialised, restored, assigned by
  // a run without an identity).
  uint64_t epoch() const override;

  // Calls fn(old, new): both have the variable's shape and may be the same memory, so element i of `new` may depend
  // only on element i of `old`. Serialised with other updates of this variable. fn must not access the variable
  // otherwise, and must validate before it writes, because partial writes before an error may remain. Of a variable in
  // device memory, both are in that memory, and fn enqueues on the device's stream.
  Status UpdateDense(absl::FunctionRef<Status(const Tensor& old_value, Tensor* new_value)> fn,
                     VariableUpdate* by = nullptr);
  // UpdateDense of several variables at once (an optimizer's slots), locked in a fixed order to avoid deadlock.
  // old_values[i] belongs to variables[i]. INVALID_ARGUMENT if a variable is in the list twice.
  static Status UpdateDense(
      absl::Span<Variable* const> variables,
      absl::FunctionRef<Status(absl::Span<const Tensor> old_values, absl::Span<Tensor> new_values)> fn,
      VariableUpdate* by = nullptr);
  // Calls fn on the memory of the variables, which no snapshot shares but which other row updates may modify
  // concurrently: fn must access a row only while it holds the row's stripe in locks[i], and must lock stripes of
  // several variables in the order given by `order` (indices into `variables`). Excludes dense updates. In device
  // memory, fn takes no stripes, and enqueues all writes of an update as one piece of work on the device's stream.
  struct Rows {
    absl::Span<Tensor> values;
    absl::Span<RowLocks* const> locks;
    absl::Span<const int> order;
  };
  static Status UpdateRows(absl::Span<Variable* const> variables, absl::FunctionRef<Status(const Rows& rows)> fn,
                           VariableUpdate* by = nullptr);
  // Calls fn(values) on memory that holds the current values and that no snapshot shares (it is copied first if one
  // does): for sparse updates that are not by rows.
  static Status UpdateInPlace(absl::Span<Variable* const> variables,
                              absl::FunctionRef<Status(absl::Span<Tensor> values)> fn, VariableUpdate* by = nullptr);

  std::string DebugString() const override;

 private:
  class Locks;
  Status NotInitialized() const;
  // Memory for a new value, where the old one has it: the spare buffer if it is free.
  StatusOr<Tensor> TakeSpare(const Tensor& like) ABSL_EXCLUSIVE_LOCKS_REQUIRED(update_mu_);
  // Makes the memory exclusive to the variable, by copying it if it is shared.
  Status BecomeSparse() ABSL_EXCLUSIVE_LOCKS_REQUIRED(update_mu_);
  // The value without a copy; sets `*sparse` if its rows need locks.
  StatusOr<Tensor> Peek(bool* sparse) const;
  // Called after an in-place update: frees a spare buffer that has been unused for a while.
  void AgeSpare() ABSL_EXCLUSIVE_LOCKS_REQUIRED(update_mu_);
  // Makes `next` the value and keeps `old`, the previous value, as the spare buffer.
  void Swap(Tensor old, Tensor next) ABSL_EXCLUSIVE_LOCKS_REQUIRED(update_mu_);
  static Status UpdateAll(
      absl::Span<Variable* const> variables, bool copy,
      absl::FunctionRef<Status(absl::Span<const Tensor> old_values, absl::Span<Tensor> new_values)> fn,
      VariableUpdate* by);
  // Call it with the update locks held.
  static void Tell(absl::Span<Variable* const> variables, VariableUpdate* by);

  const std::string name_;
  const DType dtype_;
  const PartialShape declared_shape_;
  const bool on_device_;

  // Held for the whole of an update: shared by row updates of a sparse variable, exclusively by others; never held by
  // readers.
  mutable SharedMutex update_mu_;
  Tensor spare_ ABSL_GUARDED_BY(update_mu_);
  int spare_age_ ABSL_GUARDED_BY(update_mu_) = 0;
  uint64_t epoch_ ABSL_GUARDED_BY(update_mu_) = NewEpoch();
  // Held to read or swap the value, and during an in-place update. Acquired after update_mu_.
  mutable Mutex value_mu_;
  Tensor value_ ABSL_GUARDED_BY(value_mu_);
  // Written only while update_mu_ is held exclusively. If true, no snapshot shares the value's memory.
  bool sparse_ ABSL_GUARDED_BY(value_mu_) = false;
  // Locks of the value's rows. Acquired after the other locks.
  const std::unique_ptr<RowLocks> row_locks_ = std::make_unique<RowLocks>();
};

}  // namespace millrace
