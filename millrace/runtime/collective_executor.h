// How the kernels of collective ops reach the other members of their group.
//
// A kernel describes its call and gets a callback; who the members are, and how their buffers meet, is the executor's
// business. There is one for each task; in a session of this process it is made when the first kernel asks for it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"
#include "millrace/base/mutex.h"
#include "millrace/runtime/kernel.h"
#include "millrace/runtime/resource_manager.h"

namespace millrace {

// The numbers are those of TensorFlow's messages.
enum class CollectiveKind : int8_t { kReduce = 0, kBroadcast = 1, kGather = 2, kAllToAll = 4, kReduceScatter = 5 };
string_view CollectiveKindName(CollectiveKind kind);  // "Reduce"

enum class CollectiveMerge : uint8_t { kAdd, kMul, kMin, kMax };

// What an executor keeps for a kernel from one step to the next, so that the members of an instance agree on its shape
// once, when the kernel first runs. Thread-safe.
class CollectiveMemory {
 public:
  std::shared_ptr<const void> Get() const {
    MutexLock lock(&mu_);
    return value_;
  }
  void Set(std::shared_ptr<const void> value) {
    MutexLock lock(&mu_);
    value_.swap(value);
  }

 private:
  mutable Mutex mu_;
  std::shared_ptr<const void> value_ ABSL_GUARDED_BY(mu_);
};

// A group of devices, as the ops of all members name it.
struct CollectiveGroupRef {
  int32_t key = 0;
  int32_t size = 0;
  int32_t rank = -1;            // of this device, if the program chose it (CollectiveInitializeCommunicator)
  bool must_be_joined = false;  // the group was joined before, by JoinGroup
};

// One execution of a collective op on one device.
struct CollectiveCall {
  CollectiveKind kind = CollectiveKind::kReduce;
  CollectiveGroupRef group = {};
  int32_t instance_key = 0;
  // What all members must agree on, with the kind: the type, and the shape of the output.
  DType dtype = DType::kInvalid;
  Shape shape = {};
  CollectiveMerge merge = CollectiveMerge::kAdd;
  bool divide = false;     // the merged value is divided by the size of the group
  bool is_source = false;  // of a broadcast
  // How a tensor is cut into pieces that travel independently: TensorFlow's attrs subdiv_offsets (if not empty), and
  // max_subdivs_per_device.
  std::vector<int> subdiv_offsets = {};
  int max_subdivs_per_device = -1;
  // For each of the two phases: agreeing with the other members, and exchanging data with them.
  absl::Duration timeout = absl::InfiniteDuration();
  Tensor input = {};                   // not initialized where there is none
  Tensor output = {};                  // allocated by the kernel; written until `done` is called
  CollectiveMemory* memory = nullptr;  // may be null; outlives the call
};

class CollectiveExecutor : public Resource {
 public:
  using Done = absl::AnyInvocable<void(Status)>;

  // Where executors are in a ResourceManager.
  static constexpr char kContainer[] = "millrace/collectives";
  static constexpr char kName[] = "executor";

  // The executor of the task that `ctx` belongs to.
  static StatusOr<RefPtr<CollectiveExecutor>> Of(const KernelContext& ctx);
  // Sets what makes the executor of a task that is in no cluster. During static initialization.
  using Factory = RefPtr<CollectiveExecutor> (*)();
  static void SetLocalFactory(Factory factory);

  // Calls `done` exactly once, on any thread, possibly before returning. The wait for the other members is listed in
  // the step's waits and ends with the step's cancellation, the call's time limit or the loss of a member's task.
  virtual void Run(KernelContext& ctx, CollectiveCall call, Done done) = 0;
  // Adds the device to the group and waits until the group is complete.
  virtual void JoinGroup(KernelContext& ctx, const CollectiveGroupRef& group, absl::Duration timeout, Done done) = 0;
};

}  // namespace millrace
