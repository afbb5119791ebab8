#include "millrace/runtime/kernel_registry.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_join.h"
#include "millrace/base/exception_status.h"
#include "millrace/base/log.h"
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

void KernelRegistry::Register(std::string op, DeviceKind device, Factory factory) {
  const auto [it, is_new] = factories_.emplace(std::pair(std::move(op), DeviceKindName(device)), factory);
  if (!is_new) {
    MR_LOG(Error, "two kernels of op ", it->first.first, " for ", it->first.second);
    MR_CHECK(is_new);
  }
}

bool KernelRegistry::Has(absl::string_view op, absl::string_view device_type) const {
  return factories_.contains(std::pair(std::string(op), std::string(device_type)));
}

StatusOr<std::unique_ptr<Kernel>> KernelRegistry::Create(const Node& node, Device* device) const {
  const auto it = factories_.find(std::pair(node.type(), device->type()));
  if (it == factories_.end()) {
    const std::vector<std::string> others = DevicesFor(node.type());
    return NotFound(Where(node, *device), ": there is no kernel for this op on a ", device->type(),
                    others.empty() ? "" : ", only on ", absl::StrJoin(others, ", "));
  }
  KernelInit init(node, device);
  std::unique_ptr<Kernel> kernel;
  try {
    kernel = it->second(init);
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

void FailDType(KernelInit& init, DType dtype) {
  init.Fail(Unimplemented("op ", init.node().type(), " does not take the type ", DTypeName(dtype), " on a ",
                          init.device()->type()));
}

}  // namespace millrace
