#include "millrace/runtime/variable.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "millrace/device/device_memory.h"
#include "millrace/device/memory_holders.h"
#include "millrace/tensor/copy_elements.h"

namespace millrace {
namespace {

// The number of in-place updates after which an unused spare buffer is freed, so that occasional overlap with readers
// does not cause an allocation each time.
constexpr int kMaxSpareAge = 8;

bool Fits(const Tensor& spare, const Tensor& like) {
  return spare.RefCountIsOne() && spare.dtype() == like.dtype() && spare.shape() == like.shape();
}

Status CopyValue(const Tensor& from, Tensor* to) {
  if (const DeviceBuffer* const device = DeviceBufferOf(from); device != nullptr) {
    DeviceBuffer* const target = const_cast<DeviceBuffer*>(DeviceBufferOf(*to));
    if (device == from.buffer().get()) return target->CopyFrom(*device, from.TotalBytes());
    if (from.num_elements() == 0) return absl::OkStatus();
    CopyBox part;
    part.Add(from.num_elements(), 1, 1);
    return target->CopyBoxFrom(device, from.raw_data(), to->raw_data(), SizeOf(from.dtype()), part);
  }
  CopyElements(from.dtype(), from.raw_data(), 0, to->raw_data(), 0, from.num_elements());
  return absl::OkStatus();
}

// Where memory for a value like this one comes from.
Allocator* AllocatorOf(const Tensor& like) {
  const DeviceBuffer* const device = DeviceBufferOf(like);
  return device != nullptr ? device->allocator() : Allocator::Heap();
}

// Without the device that is a part of a variable's name where there are several.
absl::string_view NameInGraph(absl::string_view name) { return name.substr(0, name.find("/device:")); }

// Copies each block of rows under its stripe's lock, so that every row is consistent.
Status CopyRows(const Tensor& from, RowLocks& locks, Tensor* to) {
  const RowLayout layout(from);
  for (int64_t row = 0; row < layout.rows; row += layout.block_rows) {
    const int64_t end = std::min(layout.rows, row + layout.block_rows);
    MutexLock lock(&locks.stripe(layout.StripeOfRow(row)));
    Tensor part = to->Slice(row, end);
    MR_RETURN_IF_ERROR(CopyValue(from.Slice(row, end), &part));
  }
  return absl::OkStatus();
}

}  // namespace

// The update locks of several variables, acquired in order of their addresses.
class Variable::Locks {
 public:
  explicit Locks(absl::Span<Variable* const> variables) : ordered_(variables.begin(), variables.end()) {
    std::sort(ordered_.begin(), ordered_.end(), std::less<Variable*>());
  }
  const Variable* Repeated() const {
    const auto it = std::adjacent_find(ordered_.begin(), ordered_.end());
    return it == ordered_.end() ? nullptr : *it;
  }
  // The thread-safety analysis cannot follow a run-time number of locks.
  void Lock() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    for (Variable* v : ordered_) v->update_mu_.Lock();
    held_ = Held::kAlone;
  }
  void LockShared() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    for (Variable* v : ordered_) v->update_mu_.LockShared();
    held_ = Held::kShared;
  }
  void Unlock() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    for (Variable* v : ordered_) {
      if (held_ == Held::kAlone) v->update_mu_.Unlock();
      if (held_ == Held::kShared) v->update_mu_.UnlockShared();
    }
    held_ = Held::kNone;
  }
  // Blocks readers of `v` until destruction. Called in the order of ordered().
  void LockValue(Variable* v) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    v->value_mu_.Lock();
    values_.push_back(v);
  }
  void UnlockLastValue() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    values_.back()->value_mu_.Unlock();
    values_.pop_back();
  }
  void UnlockValues() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    for (Variable* v : values_) v->value_mu_.Unlock();
    values_.clear();
  }
  ~Locks() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    UnlockValues();
    Unlock();
  }
  absl::Span<Variable* const> ordered() const { return ordered_; }

 private:
  absl::InlinedVector<Variable*, 4> ordered_;
  absl::InlinedVector<Variable*, 4> values_;
  enum class Held { kNone, kShared, kAlone } held_ = Held::kNone;
};

uint64_t Variable::epoch() const {
  ExclusiveLock lock(&update_mu_);
  return epoch_;
}

void Variable::Tell(absl::Span<Variable* const> variables, VariableUpdate* by) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  absl::InlinedVector<uint64_t, 4> epochs;
  for (const Variable* v : variables) epochs.push_back(v->epoch_);
  by->Applied(epochs);
}

bool Variable::IsInitialized() const {
  MutexLock lock(&value_mu_);
  return value_.IsInitialized();
}

StatusOr<Tensor> Variable::Peek(bool* sparse) const {
  MutexLock lock(&value_mu_);
  if (!value_.IsInitialized()) return NotInitialized();
  *sparse = sparse_;
  return value_;
}

StatusOr<Tensor> Variable::Read() const {
  bool sparse = false;
  StatusOr<Tensor> value = Peek(&sparse);
  if (!value.ok() || !sparse) return value;
  MR_ASSIGN_OR_RETURN(Tensor copy, Tensor::Make(value->dtype(), value->shape(), AllocatorOf(*value)));
  if (IsDeviceMemory(*value)) {
    MR_RETURN_IF_ERROR(CopyValue(*value, &copy));  // between two updates: the device's stream has an order
  } else if (value->rank() == 0) {
    MutexLock lock(&row_locks_->stripe(0));
    MR_RETURN_IF_ERROR(CopyValue(*value, &copy));
  } else if (value->num_elements() > 0) {
    MR_RETURN_IF_ERROR(CopyRows(*value, *row_locks_, &copy));
  }
  return copy;
}

StatusOr<Shape> Variable::ShapeOfValue() const {
  MutexLock lock(&value_mu_);
  if (!value_.IsInitialized()) return NotInitialized();
  return value_.shape();
}

Status Variable::ReadRows(absl::FunctionRef<Status(const Tensor&, RowLocks&)> fn) const {
  bool sparse = false;
  MR_ASSIGN_OR_RETURN(const Tensor value, Peek(&sparse));
  return fn(value, *row_locks_);
}

Status Variable::Assign(Tensor value, bool validate_shape, VariableUpdate* by) {
  if (value.dtype() != dtype_) {
    return InvalidArgument("variable ", name_, " holds ", dtype_, ", not ", value.dtype());
  }
  if (validate_shape && !declared_shape_.IsCompatibleWith(value.shape())) {
    return InvalidArgument("Assign requires shapes of both tensors to match. lhs shape= ", declared_shape_.ToString(),
                           " rhs shape= ", value.shape().ToString(), " (variable ", name_, ")");
  }
  // A small slice would keep its whole buffer alive, so copy it, unless it is in device memory.
  if (IsDeviceMemory(value)) {
    MemoryHolders::Global().Rename(value, "variable", NameInGraph(name_));
  } else if (value.buffer() && value.buffer()->root()->size() / 2 > value.TotalBytes() + Buffer::kAlignment) {
    value = value.Clone();
  }
  ExclusiveLock update_lock(&update_mu_);
  if (spare_.IsInitialized() && spare_.shape() != value.shape()) spare_ = Tensor();
  if (by == nullptr || !by->continues_epoch) epoch_ = NewEpoch();
  {
    MutexLock value_lock(&value_mu_);
    std::swap(value_, value);
    sparse_ = false;
  }
  if (by != nullptr) by->Applied({epoch_});
  return absl::OkStatus();
}

Status Variable::NotInitialized() const { return FailedPrecondition("Attempting to use uninitialized value ", name_); }

StatusOr<Tensor> Variable::TakeSpare(const Tensor& like) {
  spare_age_ = 0;
  Tensor spare = std::exchange(spare_, Tensor());
  if (Fits(spare, like)) return spare;
  const HolderName holder("variable", NameInGraph(name_));
  return Tensor::Make(like.dtype(), like.shape(), AllocatorOf(like));
}

void Variable::AgeSpare() {
  if (spare_.IsInitialized() && ++spare_age_ > kMaxSpareAge) spare_ = Tensor();
}

void Variable::Swap(Tensor old, Tensor next) {
  {
    MutexLock lock(&value_mu_);
    value_ = std::move(next);
  }
  // Readers still hold it; by the next update they will probably have released it.
  if (old.buffer()->writable() && old.buffer()->root() == old.buffer().get()) spare_ = std::move(old);
}

Status Variable::BecomeSparse() {
  Tensor shared;
  {
    MutexLock lock(&value_mu_);
    if (!value_.IsInitialized()) return NotInitialized();
    if (sparse_) return absl::OkStatus();
    spare_ = Tensor();
    sparse_ = value_.RefCountIsOne();
    if (sparse_) return absl::OkStatus();
    shared = value_;
  }
  const HolderName holder("variable", NameInGraph(name_));
  MR_ASSIGN_OR_RETURN(Tensor own, Tensor::Make(shared.dtype(), shared.shape(), AllocatorOf(shared)));
  MR_RETURN_IF_ERROR(CopyValue(shared, &own));
  MutexLock lock(&value_mu_);
  value_ = std::move(own);
  sparse_ = true;
  return absl::OkStatus();
}

Status Variable::UpdateDense(absl::FunctionRef<Status(const Tensor&, Tensor*)> fn, VariableUpdate* by) {
  ExclusiveLock update_lock(&update_mu_);
  Tensor old;
  {
    MutexLock value_lock(&value_mu_);
    if (!value_.IsInitialized()) return NotInitialized();
    sparse_ = false;
    if (value_.RefCountIsOne()) {
      AgeSpare();
      MR_RETURN_IF_ERROR(fn(value_, &value_));
      if (by != nullptr) by->Applied({epoch_});
      return absl::OkStatus();
    }
    old = value_;
  }
  MR_ASSIGN_OR_RETURN(Tensor next, TakeSpare(old));
  MR_RETURN_IF_ERROR(fn(old, &next));
  Swap(std::move(old), std::move(next));
  if (by != nullptr) by->Applied({epoch_});
  return absl::OkStatus();
}

// Which locks are held depends on whether the memory is shared, which the analysis cannot follow.
Status Variable::UpdateAll(absl::Span<Variable* const> variables, bool copy,
                           absl::FunctionRef<Status(absl::Span<const Tensor>, absl::Span<Tensor>)> fn,
                           VariableUpdate* by) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  Locks locks(variables);
  if (const Variable* v = locks.Repeated()) {
    return InvalidArgument("variable ", v->name_, " is given twice to one update");
  }
  locks.Lock();
  const size_t n = variables.size();
  absl::InlinedVector<Tensor, 4> old_values(n), new_values(n);
  for (Variable* v : locks.ordered()) {
    const size_t i = std::find(variables.begin(), variables.end(), v) - variables.begin();
    locks.LockValue(v);
    if (!v->value_.IsInitialized()) return v->NotInitialized();
    v->sparse_ = false;
    const bool in_place = v->value_.RefCountIsOne();
    old_values[i] = v->value_;
    if (in_place) {
      v->AgeSpare();
      new_values[i] = v->value_;
      continue;
    }
    locks.UnlockLastValue();
    MR_ASSIGN_OR_RETURN(new_values[i], v->TakeSpare(old_values[i]));
    if (copy) MR_RETURN_IF_ERROR(CopyValue(old_values[i], &new_values[i]));
  }
  MR_RETURN_IF_ERROR(fn(old_values, absl::MakeSpan(new_values)));
  locks.UnlockValues();
  for (size_t i = 0; i < n; ++i) {
    if (old_values[i].raw_data() == new_values[i].raw_data()) continue;
    variables[i]->Swap(std::move(old_values[i]), std::move(new_values[i]));
  }
  if (by != nullptr) Tell(variables, by);
  return absl::OkStatus();
}

Status Variable::UpdateDense(absl::Span<Variable* const> variables,
                             absl::FunctionRef<Status(absl::Span<const Tensor>, absl::Span<Tensor>)> fn,
                             VariableUpdate* by) {
  return UpdateAll(variables, /*copy=*/false, fn, by);
}

Status Variable::UpdateInPlace(absl::Span<Variable* const> variables, absl::FunctionRef<Status(absl::Span<Tensor>)> fn,
                               VariableUpdate* by) {
  return UpdateAll(
      variables, /*copy=*/true, [fn](absl::Span<const Tensor>, absl::Span<Tensor> values) { return fn(values); }, by);
}

// Which locks are held depends on the variables' state, which the analysis cannot follow.
Status Variable::UpdateRows(absl::Span<Variable* const> variables, absl::FunctionRef<Status(const Rows&)> fn,
                            VariableUpdate* by) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  Locks locks(variables);
  if (const Variable* v = locks.Repeated()) {
    return InvalidArgument("variable ", v->name_, " is given twice to one update");
  }
  const size_t n = variables.size();
  absl::InlinedVector<Tensor, 4> values(n);
  const auto all_sparse = [&] {
    for (size_t i = 0; i < n; ++i) {
      MutexLock lock(&variables[i]->value_mu_);
      if (!variables[i]->sparse_) return false;
      values[i] = variables[i]->value_;
    }
    return true;
  };
  const bool alone = by != nullptr && by->one_at_a_time;
  if (!alone) locks.LockShared();
  if (alone || !all_sparse()) {
    std::fill(values.begin(), values.end(), Tensor());
    if (!alone) locks.Unlock();
    locks.Lock();
    for (Variable* v : locks.ordered()) MR_RETURN_IF_ERROR(v->BecomeSparse());
    MR_CHECK(all_sparse());
  }
  absl::InlinedVector<RowLocks*, 4> row_locks;
  absl::InlinedVector<int, 4> order;
  for (Variable* v : variables) row_locks.push_back(v->row_locks_.get());
  for (Variable* v : locks.ordered()) {
    order.push_back(static_cast<int>(std::find(variables.begin(), variables.end(), v) - variables.begin()));
  }
  MR_RETURN_IF_ERROR(fn(Rows{absl::MakeSpan(values), row_locks, order}));
  if (by != nullptr) Tell(variables, by);
  return absl::OkStatus();
}

std::string Variable::DebugString() const {
  MutexLock lock(&value_mu_);
  return absl::StrCat("Variable ", name_, " ", DTypeName(dtype_),
                      value_.IsInitialized() ? value_.shape().ToString() : declared_shape_.ToString(),
                      value_.IsInitialized() ? "" : " (uninitialized)");
}

}  // namespace millrace
