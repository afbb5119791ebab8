#include "millrace/runtime/kernel_registry.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_join.h"
#include "millrace/base/exception_status.h"
#include "millrace/base/log.h"
#include "millrace/graph/host_memory.h"
#include "millrace/runtime/once_kernel.h"

namespace millrace {
namespace {

std::string Where(const Node& node, const Device& device) {
  return absl::StrCat("{{node ", node.name(), "}} (op ", node.type(), ") on ", device.name());
}

}  // namespace

const char* DeviceKindName(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::kCpu:
      return "CPU";
    case DeviceKind::kCuda:
      return "GPU";
  }
  return "?";
}

KernelRegistry& KernelRegistry::Global() {
  static KernelRegistry* const registry = new KernelRegistry;
  return *registry;
}

bool KernelTypes::Include(const Node& node) const {
  const auto includes = [&](const char* name, const std::vector<DType>& among) {
    return name == nullptr || absl::c_linear_search(among, node.AttrOr<DType>(name, DType::kInvalid));
  };
  return includes(attr, types) && includes(other_attr, other_types);
}

void KernelRegistry::Register(std::string op, DeviceKind device, Factory factory, KernelTypes types) {
  MutexLock lock(&mu_);
  std::vector<Entry>& entries = entries_[Key(op, DeviceKindName(device))];
  const bool is_new = absl::c_none_of(entries, [&](const Entry& other) {
    if (types.attr == nullptr || other.types.attr == nullptr) return types.attr == other.types.attr;
    return std::find_first_of(types.types.begin(), types.types.end(), other.types.types.begin(),
                              other.types.types.end()) != types.types.end();
  });
  if (!is_new) {
    MR_LOG(Error, "two kernels of op ", op, " for ", DeviceKindName(device));
    MR_CHECK(is_new);
  }
  // The one for all types comes last.
  const auto at = types.attr == nullptr ? entries.end() : entries.begin();
  entries.insert(at, {factory, std::move(types)});
}

void KernelRegistry::SetFallback(DeviceKind device, Fallback fallback) {
  MutexLock lock(&mu_);
  fallbacks_[DeviceKindName(device)] = std::move(fallback);
}

bool KernelRegistry::Has(absl::string_view op, absl::string_view device_type) const {
  MutexLock lock(&mu_);
  return entries_.contains(Key(op, device_type));
}

const KernelRegistry::Entry* KernelRegistry::Find(const Node& node, absl::string_view device_type) const {
  const auto it = entries_.find(Key(node.type(), device_type));
  if (it == entries_.end()) return nullptr;
  for (const Entry& entry : it->second) {
    if (entry.types.Include(node)) return &entry;
  }
  return nullptr;
}

bool KernelRegistry::HasFor(const Node& node, absl::string_view device_type) const {
  std::function<bool(const Node&)> accepts;
  {
    MutexLock lock(&mu_);
    if (Find(node, device_type) != nullptr) return true;
    const auto it = fallbacks_.find(device_type);
    if (it == fallbacks_.end()) return false;
    accepts = it->second.accepts;
  }
  return accepts(node);
}

StatusOr<std::unique_ptr<Kernel>> KernelRegistry::Create(const Node& node, Device* device) const {
  return CreateOf(device->type(), node, device);
}

StatusOr<std::unique_ptr<Kernel>> KernelRegistry::CreateAs(DeviceKind kind, const Node& node, Device* device) const {
  return CreateOf(DeviceKindName(kind), node, device);
}

StatusOr<std::unique_ptr<Kernel>> KernelRegistry::CreateOf(absl::string_view device_type, const Node& node,
                                                           Device* device) const {
  Factory factory = nullptr;
  Fallback fallback;
  {
    MutexLock lock(&mu_);
    const Entry* entry = Find(node, device_type);
    if (entry != nullptr && entry->factory == nullptr) entry = Find(node, DeviceKindName(kCpu));
    if (entry != nullptr) factory = entry->factory;
    if (const auto it = fallbacks_.find(device_type); entry == nullptr && it != fallbacks_.end()) fallback = it->second;
  }
  if (factory == nullptr && fallback.accepts != nullptr && fallback.accepts(node)) return fallback.create(node, device);
  if (factory == nullptr) {
    const std::vector<std::string> others = DevicesFor(node.type());
    const bool some = Has(node.type(), device_type);
    return NotFound(Where(node, *device), ": there is no kernel for this op ", some ? "and its types " : "", "on a ",
                    device_type, others.empty() || some ? "" : ", only on ", some ? "" : absl::StrJoin(others, ", "));
  }
  KernelInit init(node, device);
  std::unique_ptr<Kernel> kernel;
  try {
    kernel = factory(init);
  } catch (const std::exception& exception) {
    init.Fail(ExceptionStatus(exception));
  }
  if (!init.status().ok()) {
    return WithPrefix(absl::StrCat(Where(node, *device), ": "), init.status());
  }
  return kernel->is_recorded() ? RunOnce(std::move(kernel)) : std::move(kernel);
}

std::vector<std::string> KernelRegistry::DevicesFor(absl::string_view op) const {
  std::vector<std::string> devices;
  for (DeviceKind kind : {DeviceKind::kCpu, DeviceKind::kCuda}) {
    if (Has(op, DeviceKindName(kind))) devices.emplace_back(DeviceKindName(kind));
  }
  return devices;
}

HostKernelRegistration::HostKernelRegistration(const char* op, DeviceKind device, const char* attr, DType type) {
  KernelTypes types;
  if (attr != nullptr) types = {attr, {type}};
  KernelRegistry::Global().Register(op, device, /*factory=*/nullptr, std::move(types));
  RegisterHostNodes(op, DeviceKindName(device), attr, type);
}

void FailDType(KernelInit& init, DType dtype) {
  init.Fail(Unimplemented("op ", init.node().type(), " does not take the type ", DTypeName(dtype), " on a ",
                          init.device()->type()));
}

}  // namespace millrace
