// ResourceManager: state that outlives steps and sessions, by container and name.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <typeinfo>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "millrace/base/mutex.h"
#include "millrace/base/ref.h"
#include "millrace/base/status.h"
#include "millrace/runtime/kernel.h"
#include "millrace/runtime/run_records.h"
#include "millrace/runtime/variable.h"
#include "millrace/tensor/resource_handle.h"

namespace millrace {

// The origin of a state change: the key under which it can be logged, replayed or recognised as already applied.
struct UpdateOrigin {
  int64_t step_id = 0;
  const Node* node = nullptr;
  int64_t iteration = 0;

  static UpdateOrigin Of(const KernelContext& ctx) {
    return {.step_id = ctx.step().step_id, .node = &ctx.node(), .iteration = ctx.iteration()};
  }
};

// An update of variables, as the hook sees it. Valid during the call.
struct StateUpdate {
  // Counts the updates of this ResourceManager. Of two updates of one variable, the one with the higher number was
  // applied later.
  uint64_t sequence = 0;
  // The variables: for an optimizer its variable and its slots.
  absl::Span<const ResourceHandle* const> resources = {};
  absl::string_view session = {};
  RunIdentity run = {};  // given() is false if the run has no identity
  UpdateOrigin origin = {};
  // The bytes of the tensors that the update was made with: a gradient, a new value, indices.
  size_t payload_bytes = 0;
};
// Called with the locks of the variables held: it must not use them, nor wait for anybody who does.
using UpdateHook = std::function<void(const StateUpdate&)>;

// One per task. Thread-safe.
class ResourceManager {
 public:
  // TensorFlow's name of the default container.
  static constexpr char kDefaultContainer[] = "localhost";

  // Returns the resource of that name, created by `make` if there is none. INVALID_ARGUMENT if it has another C++ type.
  // `make` is called with the manager's lock held.
  template <typename R>
  StatusOr<RefPtr<R>> LookupOrCreate(absl::string_view container, absl::string_view name,
                                     absl::FunctionRef<StatusOr<RefPtr<R>>()> make);
  // NOT_FOUND, naming the resource, if there is none.
  template <typename R>
  StatusOr<RefPtr<R>> Lookup(absl::string_view container, absl::string_view name) const;
  // ALREADY_EXISTS, naming the resource, if the name is taken.
  Status Create(absl::string_view container, absl::string_view name, RefPtr<Resource> resource);
  // NOT_FOUND if there is none.
  Status Delete(absl::string_view container, absl::string_view name);
  // Deletes everything in the container; a no-op if there is none.
  void ClearContainer(absl::string_view container);
  void ClearAll();

  // The single entry point for updates of variables. `change` makes the update and passes its argument on to it. If the
  // run has an identity and an earlier attempt of it has made the update, `change` is not called, unless the variables
  // have begun another epoch since (Variable::epoch); outputs that `change` sets are recorded. Without identity and
  // hook it only calls `change`.
  Status UpdateVariables(KernelContext& ctx, absl::FunctionRef<Status(VariableUpdate* by)> change) {
    if (ABSL_PREDICT_TRUE(ctx.step().run == nullptr && update_hook_ == nullptr)) return change(nullptr);
    return UpdateTracked(ctx, change);
  }
  // The entry point of every other change of state: of queues, accumulators, tables. The kernels that make them
  // are recorded (Kernel::is_recorded).
  Status Update(const UpdateOrigin& origin, absl::FunctionRef<Status()> change) { return change(); }

  // Calls `hook` for every update of variables, in the order in which they are applied to each variable. Row updates of
  // a variable then exclude each other. Call it before the first step.
  void SetUpdateHook(UpdateHook hook) { update_hook_ = std::move(hook); }

  // The records of runs that may be repeated.
  RunRecords& runs() { return runs_; }

  // The number of deletions so far. If it has changed, an earlier look-up may be stale.
  uint64_t deletions() const { return deletions_.load(std::memory_order_acquire); }

  // For status pages and tests: "container/name: description".
  std::vector<std::string> List() const;

 private:
  using Key = std::pair<std::string, std::string>;
  class TrackedUpdate;
  Status UpdateTracked(KernelContext& ctx, absl::FunctionRef<Status(VariableUpdate* by)> change);
  StatusOr<RefPtr<Resource>> FindOrNull(absl::string_view container, absl::string_view name) const;
  static Status WrongType(absl::string_view name, const Resource& found, const std::type_info& wanted);
  static Status Missing(absl::string_view container, absl::string_view name);

  mutable Mutex mu_;
  absl::flat_hash_map<Key, RefPtr<Resource>> resources_ ABSL_GUARDED_BY(mu_);
  std::atomic<uint64_t> deletions_{0};
  RunRecords runs_;
  UpdateHook update_hook_;
  std::atomic<uint64_t> updates_{0};
};

// The epochs of the resources that the inputs refer to (Resource::epoch).
absl::InlinedVector<uint64_t, 4> EpochsOfInputs(const KernelContext& ctx);
// Whether the resources that an earlier attempt has changed are still in the epochs in which it did.
bool IsOfThisEpoch(const NodeOutcome& outcome, const KernelContext& ctx);

// A node's `container` and `shared_name` attrs with TensorFlow's defaults: the default container if empty, and the
// node's own name if there is no shared name.
struct ResourceName {
  std::string container;
  std::string name;
  static StatusOr<ResourceName> Of(const Node& node);
};

// A scalar tensor of dtype kResource or of a ref type that holds `handle`.
Tensor MakeHandleTensor(DType dtype, ResourceHandle handle);

template <typename R>
StatusOr<RefPtr<R>> ResourceManager::LookupOrCreate(absl::string_view container, absl::string_view name,
                                                    absl::FunctionRef<StatusOr<RefPtr<R>>()> make) {
  MutexLock lock(&mu_);
  Key key(container.empty() ? std::string(kDefaultContainer) : std::string(container), std::string(name));
  auto it = resources_.find(key);
  if (it == resources_.end()) {
    MR_ASSIGN_OR_RETURN(RefPtr<R> made, make());
    resources_.emplace(std::move(key), RefPtr<Resource>(made));
    return made;
  }
  if (auto* found = dynamic_cast<R*>(it->second.get())) return ShareRef(found);
  return WrongType(name, *it->second, typeid(R));
}

template <typename R>
StatusOr<RefPtr<R>> ResourceManager::Lookup(absl::string_view container, absl::string_view name) const {
  MR_ASSIGN_OR_RETURN(RefPtr<Resource> resource, FindOrNull(container, name));
  if (!resource) return Missing(container, name);
  if (auto* found = dynamic_cast<R*>(resource.get())) return ShareRef(found);
  return WrongType(name, *resource, typeid(R));
}

template <typename R>
StatusOr<RefPtr<R>> KernelContext::resource(int i) const {
  const Tensor& tensor = input(i);
  if (tensor.num_elements() != 1 || !(tensor.dtype() == DType::kResource || IsRef(tensor.dtype()))) {
    return InvalidArgument("input ", i, " is not a handle of a resource but ", tensor.DebugString());
  }
  const ResourceHandle& handle = tensor.scalar<ResourceHandle>();
  if (handle.resource) {
    if (auto* found = dynamic_cast<R*>(handle.resource.get())) return ShareRef(found);
  }
  if (step_->resources == nullptr) return Internal("the step has no resource manager");
  return step_->resources->Lookup<R>(handle.container, handle.name);
}

}  // namespace millrace
