#include "millrace/runtime/resource_manager.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"

namespace millrace {
namespace {

std::string ContainerOrDefault(absl::string_view container) {
  return std::string(container.empty() ? ResourceManager::kDefaultContainer : container);
}

// "Variable" rather than "N8millrace8VariableE".
std::string TypeName(const std::type_info& type) {
  int status = 0;
  std::unique_ptr<char, void (*)(void*)> text(abi::__cxa_demangle(type.name(), nullptr, nullptr, &status), std::free);
  absl::string_view name = status == 0 ? text.get() : type.name();
  constexpr absl::string_view kPrefix = "millrace::";
  if (name.substr(0, kPrefix.size()) == kPrefix) name.remove_prefix(kPrefix.size());
  return std::string(name);
}

}  // namespace

StatusOr<RefPtr<Resource>> ResourceManager::FindOrNull(absl::string_view container, absl::string_view name) const {
  const Key key(ContainerOrDefault(container), std::string(name));
  MutexLock lock(&mu_);
  const auto it = resources_.find(key);
  return it == resources_.end() ? RefPtr<Resource>() : it->second;
}

Status ResourceManager::WrongType(absl::string_view name, const Resource& found, const std::type_info& wanted) {
  return InvalidArgument("resource ", name, " is not a ", TypeName(wanted), " but ", found.DebugString());
}

Status ResourceManager::Missing(absl::string_view container, absl::string_view name) {
  return NotFound("resource ", ContainerOrDefault(container), "/", name, " does not exist");
}

Status ResourceManager::Create(absl::string_view container, absl::string_view name, RefPtr<Resource> resource) {
  Key key(ContainerOrDefault(container), std::string(name));
  MutexLock lock(&mu_);
  const auto [it, is_new] = resources_.try_emplace(std::move(key), std::move(resource));
  if (is_new) return absl::OkStatus();
  return AlreadyExists("resource ", it->first.first, "/", name, " exists: ", it->second->DebugString());
}

Status ResourceManager::Delete(absl::string_view container, absl::string_view name) {
  const Key key(ContainerOrDefault(container), std::string(name));
  RefPtr<Resource> dropped;  // destroyed after the lock is released, here and below
  MutexLock lock(&mu_);
  const auto it = resources_.find(key);
  if (it == resources_.end()) return Missing(container, name);
  dropped = std::move(it->second);
  resources_.erase(it);
  deletions_.fetch_add(1, std::memory_order_release);
  return absl::OkStatus();
}

void ResourceManager::ClearContainer(absl::string_view container) {
  const std::string wanted = ContainerOrDefault(container);
  std::vector<RefPtr<Resource>> dropped;
  MutexLock lock(&mu_);
  for (auto it = resources_.begin(); it != resources_.end();) {
    const auto current = it++;
    if (current->first.first != wanted) continue;
    dropped.push_back(std::move(current->second));
    resources_.erase(current);
  }
  if (!dropped.empty()) deletions_.fetch_add(1, std::memory_order_release);
}

void ResourceManager::ClearAll() {
  absl::flat_hash_map<Key, RefPtr<Resource>> dropped;
  MutexLock lock(&mu_);
  dropped.swap(resources_);
  deletions_.fetch_add(1, std::memory_order_release);
}

std::vector<std::string> ResourceManager::List() const {
  std::vector<std::pair<Key, RefPtr<Resource>>> all;
  {
    MutexLock lock(&mu_);
    for (const auto& [key, resource] : resources_) all.emplace_back(key, resource);
  }
  // Without the lock: a description may wait for an update of the resource, and steps must not wait with it.
  std::vector<std::string> lines;
  for (const auto& [key, resource] : all)
    lines.push_back(absl::StrCat(key.first, "/", key.second, ": ", resource->DebugString()));
  std::sort(lines.begin(), lines.end());
  return lines;
}

namespace {

bool IsHandle(const Tensor& tensor) {
  return tensor.IsInitialized() && tensor.num_elements() == 1 &&
         (tensor.dtype() == DType::kResource || IsRef(tensor.dtype()));
}

}  // namespace

absl::InlinedVector<uint64_t, 4> EpochsOfInputs(const KernelContext& ctx) {
  absl::InlinedVector<uint64_t, 4> epochs;
  for (int i = 0; i < ctx.num_inputs(); ++i) {
    if (!IsHandle(ctx.input(i))) continue;
    const StatusOr<RefPtr<Resource>> resource = ctx.resource<Resource>(i);
    if (!resource.ok()) continue;
    if (const uint64_t epoch = (*resource)->epoch(); epoch != 0) epochs.push_back(epoch);
  }
  return epochs;
}

bool IsOfThisEpoch(const NodeOutcome& outcome, const KernelContext& ctx) {
  const auto now = EpochsOfInputs(ctx);
  return absl::c_all_of(outcome.epochs, [&](uint64_t epoch) { return absl::c_linear_search(now, epoch); });
}

// Notes the epochs of an update, and calls the hook.
class ResourceManager::TrackedUpdate : public VariableUpdate {
 public:
  TrackedUpdate(ResourceManager* resources, const KernelContext& ctx) : resources_(resources), ctx_(ctx) {
    continues_epoch = ctx.step().run != nullptr;
    one_at_a_time = resources->update_hook_ != nullptr;
  }

  void Applied(absl::Span<const uint64_t> epochs) override {
    outcome_.epochs.assign(epochs.begin(), epochs.end());
    if (resources_->update_hook_ == nullptr) return;
    absl::InlinedVector<const ResourceHandle*, 4> handles;
    StateUpdate update{.sequence = resources_->updates_.fetch_add(1, std::memory_order_relaxed) + 1,
                       .session = ctx_.step().session,
                       .origin = UpdateOrigin::Of(ctx_)};
    if (ctx_.step().run != nullptr) update.run = ctx_.step().run->identity();
    for (int i = 0; i < ctx_.num_inputs(); ++i) {
      if (IsHandle(ctx_.input(i))) {
        handles.push_back(&ctx_.input(i).scalar<ResourceHandle>());
      } else if (ctx_.input(i).IsInitialized()) {
        update.payload_bytes += ctx_.input(i).TotalBytes();
      }
    }
    update.resources = handles;
    resources_->update_hook_(update);
  }

  NodeOutcome TakeOutcome() { return std::move(outcome_); }

 private:
  ResourceManager* const resources_;
  const KernelContext& ctx_;
  NodeOutcome outcome_;
};

Status ResourceManager::UpdateTracked(KernelContext& ctx, absl::FunctionRef<Status(VariableUpdate* by)> change) {
  RunRecord* const run = ctx.step().run;
  RunRecord::Execution execution;
  if (run != nullptr) {
    execution = run->Enter(ExecutionKey(ctx));
    if (execution.earlier && IsOfThisEpoch(*execution.earlier, ctx)) {
      for (size_t i = 0; i < execution.earlier->outputs.size(); ++i) {
        ctx.SetOutput(static_cast<int>(i), execution.earlier->outputs[i]);
      }
      return absl::OkStatus();
    }
  }
  TrackedUpdate update(this, ctx);
  MR_RETURN_IF_ERROR(change(&update));
  if (run == nullptr) return absl::OkStatus();
  NodeOutcome outcome = update.TakeOutcome();
  // An update by reference has the reference as its output; the kernel sets it.
  for (int i = 0; i < ctx.num_outputs() && !IsRef(ctx.output_type(i)); ++i) {
    outcome.outputs.push_back(*ctx.mutable_output(i));
  }
  run->Complete(execution, std::move(outcome));
  return absl::OkStatus();
}

StatusOr<ResourceName> ResourceName::Of(const Node& node) {
  ResourceName result;
  result.container = ContainerOrDefault(node.AttrOr<std::string>("container", ""));
  result.name = node.AttrOr<std::string>("shared_name", "");
  if (result.name.empty()) result.name = node.name();
  return result;
}

Tensor MakeHandleTensor(DType dtype, ResourceHandle handle) {
  MR_CHECK(dtype == DType::kResource || IsRef(dtype));
  Tensor tensor(dtype, Shape());
  tensor.scalar<ResourceHandle>() = std::move(handle);
  return tensor;
}

}  // namespace millrace
