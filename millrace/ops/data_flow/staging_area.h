// Tuples put down by one step for another to pick up, in order or by key.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "millrace/base/mutex.h"
#include "millrace/runtime/blocked_ops.h"

namespace millrace {

// Keys are given by the caller, or, for a plain area, number the tuples in the order they came. Ops
// wait for what they ask for, each on its own. Thread-safe.
class StagingArea : public Resource {
 public:
  struct Options {
    std::string name;
    int64_t capacity = 0;      // of tuples; 0: any number
    int64_t memory_limit = 0;  // of bytes; 0: any number
    int64_t num_components = 0;
  };
  struct Item {
    int64_t key = 0;
    std::vector<Tensor> values;
  };
  using PutDone = absl::AnyInvocable<void(Status)>;
  using GetDone = absl::AnyInvocable<void(StatusOr<Item>)>;

  explicit StagingArea(Options options);

  // Puts a whole tuple at the end, once there is room. RESOURCE_EXHAUSTED when it alone is over the
  // limit.
  void Put(const CallingOp& op, std::vector<Tensor> values, PutDone done);
  // Puts components of a tuple; the others may come later, and only then does it count. What a key
  // has already stays as it is.
  void PutAt(const CallingOp& op, int64_t key, std::vector<int32_t> components,
             std::vector<Tensor> values, PutDone done);

  // What to get: the tuple of a key, the one at a position in the order of keys, or the first one.
  struct Request {
    enum class By { kKey, kPosition, kFirst } by = By::kFirst;
    int64_t number = 0;                    // the key or the position
    bool remove = true;                    // what was got
    bool whole = true;                     // all components, or else
    std::vector<int32_t> components = {};  // these
  };
  // Once it is there.
  void Get(const CallingOp& op, Request request, GetDone done);

  void Clear(const CallingOp& op);
  int64_t size() const;
  int64_t incomplete_size() const;
  std::string DebugString() const override;

 private:
  using Tuples = std::map<int64_t, std::vector<Tensor>>;  // components that were removed are empty

  bool HasRoom(int64_t bytes, bool even_alone) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Progress TryPutAt(int64_t key, const std::vector<int32_t>& components,
                    std::vector<Tensor>* values, Status* result) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Progress TryGet(const Request& request, Item* item, Status* result)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Tuples::iterator FindTuple(const Request& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Submit(bool puts, Attempt attempt);
  void Cancel(bool puts, int64_t id);
  void Flush(FinishedOps* finished) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Options options_;
  mutable Mutex mu_;
  int64_t next_key_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t bytes_ ABSL_GUARDED_BY(mu_) = 0;
  Tuples tuples_ ABSL_GUARDED_BY(mu_);
  Tuples incomplete_ ABSL_GUARDED_BY(mu_);
  WaitingLine puts_ ABSL_GUARDED_BY(mu_);
  WaitingLine gets_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace
