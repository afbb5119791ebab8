// Staging areas: tuples that one step puts and another gets, in order or by key.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "millrace/base/mutex.h"
#include "millrace/runtime/blocked_ops.h"

namespace millrace {

// Keys are given by the caller; in a plain area they number the tuples in order of arrival. Ops wait independently of
// each other. Thread-safe.
class StagingArea : public Resource {
 public:
  struct Options {
    std::string name;
    int64_t capacity = 0;      // in tuples; 0 means unlimited
    int64_t memory_limit = 0;  // in bytes; 0 means unlimited
    int64_t num_components = 0;
  };
  struct Item {
    int64_t key = 0;
    std::vector<Tensor> values;
  };
  using PutDone = absl::AnyInvocable<void(Status)>;
  using GetDone = absl::AnyInvocable<void(StatusOr<Item>)>;

  explicit StagingArea(Options options);

  // Appends a whole tuple once there is capacity. RESOURCE_EXHAUSTED if it alone exceeds the memory limit.
  void Put(const CallingOp& op, std::vector<Tensor> values, PutDone done);
  // Puts components of a tuple; the others may follow later, and only then is it complete. Components that the key
  // already has are kept.
  void PutAt(const CallingOp& op, int64_t key, std::vector<int32_t> components, std::vector<Tensor> values,
             PutDone done);

  // What to get: the tuple of a key, the one at a position in key order, or the first one.
  struct Request {
    enum class By { kKey, kPosition, kFirst } by = By::kFirst;
    int64_t number = 0;                    // the key or the position
    bool remove = true;                    // remove what was returned
    bool whole = true;                     // all components; otherwise
    std::vector<int32_t> components = {};  // these
  };
  // Calls `done` with the tuple once it exists.
  void Get(const CallingOp& op, Request request, GetDone done);

  void Clear(const CallingOp& op);
  int64_t size() const;
  int64_t incomplete_size() const;
  std::string DebugString() const override;

 private:
  using Tuples = std::map<int64_t, std::vector<Tensor>>;  // removed components are uninitialized

  bool HasRoom(int64_t bytes, bool even_alone) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Progress TryPutAt(int64_t key, const std::vector<int32_t>& components, std::vector<Tensor>* values, Status* result)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Progress TryGet(const Request& request, Item* item, Status* result) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
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
