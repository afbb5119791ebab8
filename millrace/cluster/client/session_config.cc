#include "millrace/cluster/client/session_config.h"

#include <algorithm>

#include "millrace/cluster/codec/codec.h"
#include "millrace/graph/passes/pass.h"

namespace millrace {
namespace {

int64_t Milliseconds(absl::Duration timeout) {
  if (timeout == absl::InfiniteDuration()) return 0;
  return std::max<int64_t>(1, absl::ToInt64Milliseconds(absl::Ceil(timeout, absl::Milliseconds(1))));
}

bool AnyOff(const PassOptions& passes) {
  const absl::Span<const Pass> all = AllPasses();
  return std::any_of(all.begin(), all.end(), [&](const Pass& pass) { return !(passes.*pass.enabled); });
}

}  // namespace

pb::ConfigProto ConfigOf(const SessionOptions& options) {
  pb::ConfigProto config = options.config;
  if (options.intra_op_threads > 0) config.set_intra_op_parallelism_threads(options.intra_op_threads);
  if (options.inter_op_threads > 0) config.set_inter_op_parallelism_threads(options.inter_op_threads);
  if (options.cpu_devices > 1) (*config.mutable_device_count())["CPU"] = options.cpu_devices;
  if (options.gpu_devices >= 0) (*config.mutable_device_count())["GPU"] = options.gpu_devices;
  if (options.allow_soft_placement) config.set_allow_soft_placement(true);
  if (options.log_device_placement) config.set_log_device_placement(true);
  if (options.isolate_session_state) config.set_isolate_session_state(true);
  for (const std::string& filter : options.device_filters) config.add_device_filters(filter);
  if (options.cluster.job_size() > 0) *config.mutable_cluster_def() = options.cluster;
  if (const int64_t ms = Milliseconds(options.operation_timeout); ms > 0) config.set_operation_timeout_in_ms(ms);
  if (AnyOff(options.passes)) {
    config.mutable_graph_options()->mutable_optimizer_options()->set_opt_level(pb::OptimizerOptions::L0);
  }
  return config;
}

pb::RunOptions RunOptionsProto(const RunOptions& options, absl::Duration timeout) {
  pb::RunOptions proto;
  if (options.trace) proto.set_trace_level(pb::RunOptions::FULL_TRACE);
  proto.set_timeout_in_ms(Milliseconds(timeout));
  proto.set_output_partition_graphs(options.output_partition_graphs);
  if (options.identity.given()) *proto.mutable_millrace_run() = ToProto(options.identity);
  return proto;
}

std::vector<DeviceInfo> DeviceInfos(const pb::ListDevicesResponse& response) {
  std::vector<DeviceInfo> devices;
  for (const auto* list : {&response.local_device(), &response.remote_device()}) {
    for (const pb::DeviceAttributes& device : *list) {
      devices.push_back({.name = device.name(),
                         .type = device.device_type(),
                         .memory_limit = device.memory_limit(),
                         .incarnation = device.incarnation()});
    }
  }
  return devices;
}

}  // namespace millrace
