// A tensor that outlives steps: behind VariableV2 and VarHandleOp alike.
#pragma once

#include <string>

#include "absl/functional/function_ref.h"
#include "millrace/base/mutex.h"
#include "millrace/tensor/resource_handle.h"
#include "millrace/tensor/tensor.h"

namespace millrace {

// Readers get a snapshot that no later update changes: an update writes in place when nobody else
// holds the memory, and otherwise into a spare buffer that it swaps in. Thread-safe.
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
  // Replaces the value. The tensor is shared, not copied: the caller no longer writes to it.
  // INVALID_ARGUMENT when it does not fit the declared type, or, unless `validate_shape` is false, shape.
  Status Assign(Tensor value, bool validate_shape = true);

  // Calls fn(old, new): both have the variable's shape and may be the same memory. Element i of `new`
  // may depend on element i of `old` alone. Serialised with other updates of this variable.
  Status UpdateDense(absl::FunctionRef<Status(const Tensor& old_value, Tensor* new_value)> fn);
  // Like UpdateDense over several variables at once (an optimizer's slots), locked in a fixed order so
  // that two updates cannot deadlock. old_values[i] belongs to variables[i].
  static Status UpdateDense(
      absl::Span<Variable* const> variables,
      absl::FunctionRef<Status(absl::Span<const Tensor> old_values, absl::Span<Tensor> new_values)> fn);
  // Calls fn(value) on memory that holds the current value and that no reader shares (it is copied
  // first when one does): for updates of single rows or other places.
  static Status UpdateInPlace(absl::Span<Variable* const> variables,
                              absl::FunctionRef<Status(absl::Span<Tensor> values)> fn);

  std::string DebugString() const override;

 private:
  class LockAll;
  Status NotInitialized() const;
  // Memory for a new value: the spare when it is free.
  Tensor SpareFor(const Tensor& like) ABSL_EXCLUSIVE_LOCKS_REQUIRED(update_mu_);

  const std::string name_;
  const DType dtype_;
  const PartialShape declared_shape_;

  // Held for the whole of an update; never by readers.
  mutable Mutex update_mu_;
  Tensor spare_ ABSL_GUARDED_BY(update_mu_);
  // Held only to look at or swap the value.
  mutable Mutex value_mu_;
  Tensor value_ ABSL_GUARDED_BY(value_mu_);
};

}  // namespace millrace
