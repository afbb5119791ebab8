#include "millrace/graph/host_memory.h"

#include <tuple>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "millrace/graph/device_name.h"

namespace millrace {
namespace {

struct HostArgument {
  std::string device_type;
  std::string name;
  DType dtype;
};

// By op. Filled during static initialization, constant afterwards.
absl::flat_hash_map<std::string, std::vector<HostArgument>>& Registry() {
  static auto* const registry = new absl::flat_hash_map<std::string, std::vector<HostArgument>>;
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
  const auto it = Registry().find(node.type());
  if (it == Registry().end()) return false;
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
  Registry()[op].push_back({device_type, argument, dtype});
}

bool RunsInHostMemory(const Node& node) { return DeviceType(node) == "CPU"; }

bool IsInHostMemory(const Endpoint& tensor) {
  if (tensor.node->is_detached()) return true;  // a feed
  return IsHosts(*tensor.node, tensor.node->op().outputs, tensor.index, tensor.dtype());
}

bool WantsHostMemory(const Node& node, int i) { return IsHosts(node, node.op().inputs, i, node.input_type(i)); }

}  // namespace millrace
