// What kernels see of the group of tasks that computes together.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "millrace/base/ref.h"
#include "millrace/base/status.h"
#include "millrace/runtime/resource_manager.h"
#include "millrace/tensor/dtype.h"
#include "millrace/tensor/resource_handle.h"

namespace millrace {

// Elements of one type that all tasks reduce together, or that one of them sends to all. `owner` keeps the memory for
// as long as another task may read it, which may be longer than the operation if that failed.
struct CollectiveElements {
  void* data = nullptr;
  int64_t count = 0;
  DType dtype = DType::kInvalid;
  RefPtr<const RefCounted> owner = nullptr;
};

// The sum of the logical shards first, ..., last - 1, which this task has computed in the order of the shard tree.
struct ShardSum {
  int first = 0;
  int last = 0;
  const void* data = nullptr;
};

struct ShardReduction {
  // Names the operation in messages; the same on all tasks.
  std::string key = {};
  // Where the sum over all shards goes; each of `sums` has as many elements.
  CollectiveElements result = {};
  std::vector<ShardSum> sums = {};
  // The rank of each shard. If empty, `sums` has one element, which is that of this task: the sum of the tasks is then
  // computed in the order of `algorithm`, which may depend on their number.
  std::vector<int> owners = {};
  // "auto", or the name of an algorithm of the all-reduce.
  std::string algorithm = {};
};

// The member of a group that this task is. Its operations must have the same order on all tasks: a graph gets it from
// OrderCollectives (graph/passes/pass.h). Operations that fail are those of CollectiveGroup: they name the task that is
// missing or does something else, and after the first error all others fail with it.
//
// Thread-safe. `done` is called once, on any thread, and must not block.
class CollectiveExecutor : public Resource {
 public:
  using Done = absl::AnyInvocable<void(Status)>;

  // Where kernels find it in their task's ResourceManager.
  static constexpr char kContainer[] = "_collective";
  static constexpr char kName[] = "executor";
  // FAILED_PRECONDITION if the session does not belong to a group.
  static StatusOr<RefPtr<CollectiveExecutor>> Of(const KernelContext& ctx) {
    if (ctx.resources() != nullptr) {
      StatusOr<RefPtr<CollectiveExecutor>> found = ctx.resources()->Lookup<CollectiveExecutor>(kContainer, kName);
      if (found.ok()) return found;
    }
    return absl::FailedPreconditionError(
        "this session does not belong to a group of workers; a strategy's TrainingSession or SessionOptions do");
  }

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual void Reduce(ShardReduction reduction, Done done) = 0;
  // Afterwards all tasks have the elements of the task `root`.
  virtual void Broadcast(const std::string& key, CollectiveElements elements, int root, Done done) = 0;
  // Ends the group on all tasks with this error, and so the operations in flight.
  virtual void Abort(Status why) = 0;
};

}  // namespace millrace
