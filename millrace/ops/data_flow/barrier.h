// Barrier: collects the components of elements by key; an element is ready once it has all of them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "millrace/base/mutex.h"
#include "millrace/ops/data_flow/tuple_store.h"
#include "millrace/runtime/blocked_ops.h"

namespace millrace {

// Elements leave in the order in which their keys were first inserted. Thread-safe.
class Barrier : public Resource {
 public:
  static constexpr char kTypeName[] = "tensorflow::barrier::Barrier";

  struct Options {
    std::string name;
    std::vector<DType> types;
    std::vector<PartialShape> shapes;  // one per type; unknown where none was given
  };
  // The result: insertion indices, keys, components.
  using TakeDone = absl::AnyInvocable<void(StatusOr<std::vector<Tensor>>)>;

  explicit Barrier(Options options);

  const Options& options() const { return options_; }

  // Row i of `values` becomes a component of the element keys[i]. INVALID_ARGUMENT if one of them already has it,
  // CANCELLED if the barrier is closed and a key is new; in both cases nothing is inserted.
  Status InsertMany(const CallingOp& op, const Tensor& keys, int64_t component, const Tensor& values);
  // OUT_OF_RANGE if the barrier is closed and can never have that many elements; with `allow_small_batch`, a closed
  // barrier returns those that are ready.
  void TakeMany(const CallingOp& op, int64_t n, bool allow_small_batch, TakeDone done);
  // Rejects new keys from now on; with `cancel_pending`, drops incomplete elements. CANCELLED if it is already closed,
  // unless this call drops what the first one left.
  Status Close(const CallingOp& op, bool cancel_pending);

  int64_t ready_size() const;
  int64_t incomplete_size() const;
  std::string DebugString() const override;

 private:
  struct Incomplete {
    int64_t order = 0;
    int64_t missing = 0;
    std::vector<Tensor> components;
  };

  Status CheckInsert(const Tensor& keys, int64_t component) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Progress TryTake(int64_t n, bool allow_small_batch, std::vector<TupleStore::Tuple>* taken, Status* result)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // For a closed barrier: limits `*n` to the ready elements if `allow_small_batch`; OUT_OF_RANGE if there can never be
  // enough.
  Status LimitToReady(bool allow_small_batch, int64_t* n) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  StatusOr<std::vector<Tensor>> Batch(const std::vector<TupleStore::Tuple>& elements, Allocator* allocator) const;
  Status TooFew(int64_t n, int64_t total) const;
  void Cancel(int64_t id);

  const Options options_;

  mutable Mutex mu_;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
  int64_t next_order_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<std::string, Incomplete> incomplete_ ABSL_GUARDED_BY(mu_);
  const std::unique_ptr<TupleStore> ready_ ABSL_PT_GUARDED_BY(mu_);  // tuples of order, key, components
  WaitingLine takes_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace
