#include "millrace/api/replica_device_setter.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "millrace/graph/device_name.h"

namespace millrace {

PsStrategy RoundRobinStrategy(int ps_tasks) {
  auto next = std::make_shared<int>(0);
  return [next, ps_tasks](const Node&) {
    const int task = *next;
    *next = (task + 1) % std::max(ps_tasks, 1);
    return task;
  };
}

PsStrategy GreedyStrategy(int ps_tasks, std::function<int64_t(const Node& node)> load) {
  if (load == nullptr) load = VariableBytes;
  auto loads = std::make_shared<std::vector<int64_t>>(std::max(ps_tasks, 1), 0);
  return [loads, load = std::move(load)](const Node& node) {
    const auto least = std::min_element(loads->begin(), loads->end());
    *least += load(node);
    return static_cast<int>(least - loads->begin());
  };
}

int64_t VariableBytes(const Node& variable) {
  int64_t bytes = static_cast<int64_t>(SizeOf(BaseType(variable.AttrOr<DType>("dtype", DType::kFloat))));
  const PartialShape shape = variable.AttrOr<PartialShape>("shape", PartialShape());
  for (int i = 0; i < shape.rank(); ++i) {
    if (shape.dim(i) >= 0) bytes *= shape.dim(i);
  }
  return bytes;
}

const std::vector<std::string>& StandardPsOps() {
  static const auto& ops = *new std::vector<std::string>{"Variable",
                                                         "VariableV2",
                                                         "AutoReloadVariable",
                                                         "MutableHashTable",
                                                         "MutableHashTableV2",
                                                         "MutableHashTableOfTensors",
                                                         "MutableHashTableOfTensorsV2",
                                                         "MutableDenseHashTable",
                                                         "MutableDenseHashTableV2",
                                                         "VarHandleOp",
                                                         "BoostedTreesEnsembleResourceHandleOp",
                                                         "BoostedTreesQuantileStreamResourceHandleOp",
                                                         "ResourceConditionalAccumulator",
                                                         "DecisionTreeResource"};
  return ops;
}

DeviceFunction ReplicaDeviceSetter(ReplicaDeviceSetterOptions options) {
  if (options.ps_tasks <= 0) return [](const Node& node) { return node.requested_device(); };
  if (options.ps_strategy == nullptr) options.ps_strategy = RoundRobinStrategy(options.ps_tasks);
  const auto ps_ops =
      std::make_shared<const absl::flat_hash_set<std::string>>(options.ps_ops.begin(), options.ps_ops.end());
  return [options = std::move(options), ps_ops](const Node& node) {
    const std::string& current = node.requested_device();
    if (!options.merge_devices && !current.empty()) return current;
    const StatusOr<DeviceName> asked = DeviceName::Parse(current);
    if (!asked.ok()) return current;
    const bool is_ps = ps_ops->contains(node.type()) && !options.ps_device.empty();
    const std::string& base_text = is_ps ? options.ps_device : options.worker_device;
    const StatusOr<DeviceName> base = DeviceName::Parse(base_text);
    if (!base.ok()) return base_text;
    if (!is_ps) return asked->Over(*base).ToString();
    if (!base->job || (asked->job && asked->job != base->job)) {
      const StatusOr<DeviceName> worker = DeviceName::Parse(options.worker_device);
      return worker.ok() ? asked->Over(*worker).ToString() : options.worker_device;
    }
    DeviceName server = *base;
    server.task = options.ps_strategy(node);
    return asked->Over(server).ToString();
  };
}

}  // namespace millrace
