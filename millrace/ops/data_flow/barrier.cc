#include "millrace/ops/data_flow/barrier.h"

#include <limits>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "millrace/ops/data_flow/rows.h"

namespace millrace {

Barrier::Barrier(Options options)
    : options_(std::move(options)),
      next_order_(std::numeric_limits<int64_t>::min()),
      ready_(TupleStore::ByPriority()),
      takes_(absl::StrCat("Barrier '", options_.name, "'"), ResourceKind::kBarrier) {}

Status Barrier::CheckInsert(const Tensor& keys, int64_t component) const {
  if (cancelled_) {
    return Cancelled("Barrier ", options_.name,
                     " is closed.  Pending enqueues cancelled: 1.  Number of new insertions: ", keys.num_elements(),
                     ".");
  }
  absl::flat_hash_set<absl::string_view> seen;
  for (const std::string& key : keys.flat<std::string>()) {
    const auto at = incomplete_.find(key);
    const bool is_new = at == incomplete_.end();
    if (closed_ && (is_new || cancelled_)) {
      return Cancelled("Barrier ", options_.name, " is closed, but attempted to insert a brand new key: ", key,
                       ".  Pending enqueues cancelled: ", cancelled_ ? 1 : 0,
                       ".  Number of incomplete keys: ", incomplete_.size(), ".");
    }
    if (!seen.insert(key).second || (!is_new && at->second.components[component].IsInitialized())) {
      return InvalidArgument("Key ", key, " already has a value for component ", component, " in barrier ",
                             options_.name);
    }
  }
  return absl::OkStatus();
}

Status Barrier::InsertMany(const CallingOp& op, const Tensor& keys, int64_t component, const Tensor& values) {
  if (keys.rank() != 1) return InvalidArgument("keys must be a vector, got shape ", keys.shape().ToString());
  const PartialShape& each = options_.shapes[component];
  PartialShape expected;
  if (each.known_rank()) {
    expected = PartialShape({keys.num_elements()});
    for (const int64_t d : each.dims()) expected.AddDim(d);
  }
  if (values.num_elements() == 0 && keys.num_elements() > 0) {
    return InvalidArgument("Tensors with no elements are not supported for component ", component, ": received shape ",
                           values.shape().ToString());
  }
  if (!expected.IsCompatibleWith(values.shape()) || values.rank() == 0 || values.dim(0) != keys.num_elements()) {
    return InvalidArgument("Expected values of shape ", expected.ToString(), " for component ", component, ", got ",
                           values.shape().ToString());
  }
  FinishedOps finished(op.step);
  Status status;
  op.Change([&] {
    MutexLock lock(&mu_);
    status = CheckInsert(keys, component);
    if (!status.ok()) return;
    bool any_new = false;
    for (int64_t i = 0; i < keys.num_elements(); ++i) {
      const auto [at, is_new] = incomplete_.try_emplace(keys.data<std::string>()[i]);
      Incomplete& element = at->second;
      if (is_new) {
        any_new = true;
        element.order = next_order_;
        element.missing = static_cast<int64_t>(options_.types.size());
        element.components.resize(options_.types.size());
      }
      element.components[component] = values.Row(i).Clone();
      if (--element.missing > 0) continue;
      TupleStore::Tuple tuple = {Tensor::Scalar<int64_t>(element.order), Tensor::Scalar<std::string>(at->first)};
      for (Tensor& part : element.components) tuple.push_back(std::move(part));
      ready_->Push(std::move(tuple));
      incomplete_.erase(at);
    }
    // Keys inserted together have the same order number.
    if (any_new) ++next_order_;
    takes_.Advance(&finished);
  });
  finished.Tell(nullptr);
  return status;
}

Status Barrier::TooFew(int64_t n, int64_t total) const {
  return OutOfRange("Barrier '", options_.name, "' is closed and has insufficient elements (requested ", n,
                    ", total size ", total, ")");
}

Progress Barrier::TryTake(int64_t n, bool allow_small_batch, std::vector<TupleStore::Tuple>* taken, Status* result) {
  const int64_t ready = ready_->size();
  if (ready < n) {
    if (!closed_ || !incomplete_.empty()) return Progress::kNone;
    if (!allow_small_batch || ready == 0) {
      *result = TooFew(n, ready);
      return Progress::kDone;
    }
    n = ready;
  }
  for (int64_t i = 0; i < n; ++i) taken->push_back(ready_->Pop());
  return Progress::kDone;
}

Status Barrier::LimitToReady(bool allow_small_batch, int64_t* n) const {
  if (!closed_) return absl::OkStatus();
  const int64_t ready = ready_->size();
  const int64_t total = ready + static_cast<int64_t>(incomplete_.size());
  if (allow_small_batch) *n = std::min(*n, ready);
  return total < std::max<int64_t>(*n, 1) ? TooFew(*n, total) : absl::OkStatus();
}

void Barrier::TakeMany(const CallingOp& op, int64_t n, bool allow_small_batch, TakeDone done) {
  if (n < 0) return done(InvalidArgument("cannot take ", n, " elements from barrier ", options_.name));
  auto taken = std::make_shared<std::vector<TupleStore::Tuple>>();
  Attempt attempt(op, "elements of");
  attempt.run = [this, n, allow_small_batch, taken, is_first = true](Status* result)
                    ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) mutable {
                      // A take that arrives after the close does not wait if it allows a small batch.
                      if (std::exchange(is_first, false)) {
                        *result = LimitToReady(allow_small_batch, &n);
                        if (!result->ok()) return Progress::kDone;
                      }
                      return TryTake(n, allow_small_batch, taken.get(), result);
                    };
  attempt.cancelled = "Dequeue operation was cancelled";
  attempt.done = [self = ShareRef(this), taken, allocator = op.allocator,
                  done = std::move(done)](Status status) mutable {
    if (!status.ok()) return done(std::move(status));
    done(self->Batch(*taken, allocator));
  };
  FinishedOps finished(op.step);
  op.Change([&] {
    MutexLock lock(&mu_);
    takes_.Join(
        std::move(attempt), &finished, [this](int64_t id) { return [self = ShareRef(this), id] { self->Cancel(id); }; },
        [this, n] {
          return [self = ShareRef(this), n](Wait* wait) {
            wait->has = self->ready_size();
            wait->needs = n;
            wait->what = absl::StrCat(n, n == 1 ? " element of " : " elements of ", wait->resource, ", which has ",
                                      wait->has, " ready and ", self->incomplete_size(), " incomplete");
          };
        });
  });
  finished.Tell(op.step);
}

StatusOr<std::vector<Tensor>> Barrier::Batch(const std::vector<TupleStore::Tuple>& elements,
                                             Allocator* allocator) const {
  std::vector<Tensor> batch;
  std::vector<const Tensor*> rows(elements.size());
  for (size_t c = 0; c < options_.types.size() + 2; ++c) {
    for (size_t i = 0; i < elements.size(); ++i) rows[i] = &elements[i][c];
    const DType dtype = c == 0 ? DType::kInt64 : c == 1 ? DType::kString : options_.types[c - 2];
    Shape each;
    if (c >= 2) {
      if (!options_.shapes[c - 2].IsFullyDefined()) {
        return InvalidArgument("Barrier '", options_.name,
                               "': taking elements requires the components to have specified shapes.");
      }
      each = options_.shapes[c - 2].AsShape();
    }
    StatusOr<Tensor> column = StackRows(dtype, each, rows, allocator);
    if (!column.ok()) return column.status();
    batch.push_back(*std::move(column));
  }
  return batch;
}

void Barrier::Cancel(int64_t id) {
  FinishedOps finished;
  {
    MutexLock lock(&mu_);
    if (takes_.Cancel(id, &finished)) takes_.Advance(&finished);
  }
  finished.Tell(nullptr);
}

Status Barrier::Close(const CallingOp& op, bool cancel_pending) {
  FinishedOps finished(op.step);
  Status status;
  op.Change([&] {
    MutexLock lock(&mu_);
    if (closed_ && (cancelled_ || !cancel_pending)) {
      status = Cancelled("Barrier '", options_.name, "' is already closed.");
      return;
    }
    closed_ = true;
    if (cancel_pending) {
      cancelled_ = true;
      incomplete_.clear();
    }
    takes_.Advance(&finished);
  });
  finished.Tell(nullptr);
  return status;
}

int64_t Barrier::ready_size() const {
  MutexLock lock(&mu_);
  return ready_->size();
}

int64_t Barrier::incomplete_size() const {
  MutexLock lock(&mu_);
  return static_cast<int64_t>(incomplete_.size());
}

std::string Barrier::DebugString() const {
  MutexLock lock(&mu_);
  return absl::StrCat("Barrier '", options_.name, "': ", ready_->size(), " ready, ", incomplete_.size(),
                      " incomplete, ", takes_.size(), " takes waiting", closed_ ? ", closed" : "");
}

}  // namespace millrace
