#include "millrace/task/failed_device.h"

#include <string>

#include "absl/strings/match.h"
#include "millrace/device/device_health.h"

namespace millrace {
namespace {

// "{{node a}}, {{node b}} and 3 more".
std::string NodesOn(const Graph& graph, const Device& device) {
  constexpr int kNamed = 5;
  std::string names;
  int count = 0;
  for (const Node* node : graph.nodes()) {
    if (node->assigned_device() != device.name()) continue;
    if (++count <= kNamed) absl::StrAppend(&names, count > 1 ? ", " : "", "{{node ", node->name(), "}}");
  }
  if (count > kNamed) absl::StrAppend(&names, " and ", count - kNamed, " more");
  return names;
}

}  // namespace

Status CheckDevices(const Plan& plan) {
  for (Device* device : plan.stream_devices()) MR_RETURN_IF_ERROR(HealthOf(device));
  return absl::OkStatus();
}

Status NameFailedDevice(const Plan& plan, int64_t step_id, Status status) {
  if (ABSL_PREDICT_TRUE(status.ok())) return status;
  for (Device* device : plan.stream_devices()) {
    const Status health = HealthOf(device);
    if (health.ok()) continue;
    std::string where = absl::StrCat("; ", device->name(), " failed in step ", step_id);
    if (!absl::StrContains(health.message(), "{{node ")) {
      absl::StrAppend(&where, ", in one of its nodes there: ", NodesOn(plan.graph(), *device));
    }
    return Status(status.code(), absl::StrCat(status.message(), where));
  }
  return status;
}

}  // namespace millrace
