#include "millrace/graph/host_memory.h"

#include <tuple>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "millrace/base/mutex.h"
#include "millrace/graph/device_name.h"

namespace millrace {
namespace {

struct HostArgument {
  std::string device_type;
  std::string name;
  DType dtype;
};

struct HostNodes {
  std::string device_type;
  const char* attr;
  DType dtype;
};

// By op. Filled when libraries with kernels are loaded.
struct Registry {
  Mutex mu;
  absl::flat_hash_map<std::string, std::vector<HostArgument>> arguments ABSL_GUARDED_BY(mu);
  absl::flat_hash_map<std::string, std::vector<HostNodes>> nodes ABSL_GUARDED_BY(mu);
};

Registry& TheRegistry() {
  static auto* const registry = new Registry;
  return *registry;
}

std::string DeviceType(const Node& node) {
  const StatusOr<DeviceName> name = DeviceName::Parse(node.assigned_device());
  return name.ok() && name->type ? *name->type : "CPU";
}

// The argument in `args` that the node's i-th input or output belongs to.
const OpArg* ArgumentAt(const Node& node, const std::vector<OpArg>& args, int64_t i) {
  for (const OpArg& arg : args) {
    int64_t count = 1;
    if (!arg.number_attr.empty()) count = node.AttrOr<int64_t>(arg.number_attr, 1);
    if (!arg.type_list_attr.empty()) {
      const pb::AttrValue* types = node.FindAttr(arg.type_list_attr);
      count = types != nullptr ? types->list().type_size() : 0;
    }
    if (i < count) return &arg;
    i -= count;
  }
  return nullptr;
}

bool IsHosts(const Node& node, const std::vector<OpArg>& args, int i, DType dtype) {
  if (IsRef(dtype) || !IsPlain(dtype)) return true;
  const std::string device_type = DeviceType(node);
  if (device_type == "CPU") return true;
  Registry& registry = TheRegistry();
  MutexLock lock(&registry.mu);
  if (const auto nodes = registry.nodes.find(node.type()); nodes != registry.nodes.end()) {
    for (const HostNodes& host : nodes->second) {
      if (host.device_type == device_type &&
          (host.attr == nullptr || node.AttrOr<DType>(host.attr, DType::kInvalid) == host.dtype))
        return true;
    }
  }
  const auto it = registry.arguments.find(node.type());
  if (it == registry.arguments.end()) return false;
  const OpArg* const arg = ArgumentAt(node, args, i);
  if (arg == nullptr) return false;
  for (const HostArgument& host : it->second) {
    if (host.device_type == device_type && host.name == arg->name &&
        (host.dtype == DType::kInvalid || host.dtype == dtype)) {
      return true;
    }
  }
  return false;
}

}  // namespace

HostMemoryRegistration::HostMemoryRegistration(const char* op, const char* device_type, const char* argument,
                                               DType dtype) {
  Registry& registry = TheRegistry();
  MutexLock lock(&registry.mu);
  registry.arguments[op].push_back({device_type, argument, dtype});
}

void RegisterHostNodes(const char* op, const char* device_type, const char* attr, DType type) {
  Registry& registry = TheRegistry();
  MutexLock lock(&registry.mu);
  registry.nodes[op].push_back({device_type, attr, type});
}

bool RunsInHostMemory(const Node& node) { return DeviceType(node) == "CPU"; }

bool IsInHostMemory(const Endpoint& tensor) {
  if (tensor.node->is_detached()) return true;  // a feed
  return IsHosts(*tensor.node, tensor.node->op().outputs, tensor.index, tensor.dtype());
}

bool IsReferredValueInHostMemory(const Endpoint& reference) {
  if (reference.node->is_detached()) return true;  // a feed
  return !IsPlain(BaseType(reference.dtype())) || RunsInHostMemory(*reference.node);
}

bool WantsHostMemory(const Node& node, int i) { return IsHosts(node, node.op().inputs, i, node.input_type(i)); }

}  // namespace millrace
