#include "millrace/executor/step_stats.h"

#include <algorithm>
#include <map>
#include <thread>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace millrace {
namespace {

int ThisThreadNumber() {
  static std::atomic<int> next{0};
  thread_local const int number = next.fetch_add(1);
  return number;
}

// "512B", "1.5KiB".
std::string BytesText(int64_t bytes) {
  if (bytes < 1024) return absl::StrCat(bytes, "B");
  double value = static_cast<double>(bytes);
  const char* unit = "";
  for (const char* next : {"KiB", "MiB", "GiB", "TiB"}) {
    if (value < 1024) break;
    value /= 1024;
    unit = next;
  }
  return absl::StrFormat("%.1f%s", value, unit);
}

}  // namespace

void StepStatsCollector::Record(const Node& node, const Device& device, int64_t start_nanos, int64_t end_nanos,
                                absl::Span<const Tensor> outputs) {
  Entry entry{&node, &device, start_nanos, end_nanos, ThisThreadNumber(), {}, 0};
  for (const Tensor& t : outputs) {
    if (!t.IsInitialized()) continue;
    entry.outputs.emplace_back(t.dtype(), t.shape());
    entry.bytes += t.TotalBytes();
  }
  MutexLock lock(&mu_);
  entries_.push_back(std::move(entry));
}

void StepStatsCollector::RecordTransfer(Transfer transfer) {
  MutexLock lock(&mu_);
  transfers_.push_back(std::move(transfer));
}

void SetTimes(int64_t start_nanos, int64_t end_nanos, pb::NodeExecStats* event) {
  const int64_t nanos = end_nanos - start_nanos;
  event->set_all_start_micros(start_nanos / 1000);
  event->set_all_start_nanos(start_nanos);
  event->set_op_start_rel_micros(0);
  event->set_op_end_rel_micros(nanos / 1000);
  event->set_op_end_rel_nanos(nanos);
  event->set_all_end_rel_micros(nanos / 1000);
  event->set_all_end_rel_nanos(nanos);
}

void StepStatsCollector::ToProto(pb::StepStats* stats) const {
  MutexLock lock(&mu_);
  std::map<std::string, pb::DeviceStepStats*> devices;
  const auto find = [&](const std::string& name) {
    pb::DeviceStepStats*& device = devices[name];
    if (device == nullptr) {
      device = stats->add_dev_stats();
      device->set_device(name);
    }
    return device;
  };
  for (const Transfer& t : transfers_) {
    pb::NodeExecStats* event = find(t.to)->add_node_stats();
    event->set_node_name(kRecvTensor);
    SetTimes(t.start_nanos, t.end_nanos, event);
    event->set_scheduled_micros(t.sent_micros);
    event->set_timeline_label(absl::StrCat("[", BytesText(t.bytes), "] ", t.tensor, " from ", t.from, " to ", t.to));
    event->add_memory()->set_total_bytes(t.bytes);
  }
  for (const Entry& e : entries_) {
    pb::NodeExecStats* node = find(e.device->name())->add_node_stats();
    node->set_node_name(e.node->name());
    SetTimes(e.start_nanos, e.end_nanos, node);
    node->set_thread_id(static_cast<uint32_t>(e.thread));
    std::vector<std::string> inputs;
    for (const Endpoint& in : e.node->inputs()) inputs.push_back(in.name());
    node->set_timeline_label(
        absl::StrCat(e.node->name(), " = ", e.node->type(), "(", absl::StrJoin(inputs, ", "), ")"));
    for (size_t i = 0; i < e.outputs.size(); ++i) {
      pb::NodeOutput* output = node->add_output();
      output->set_slot(static_cast<int>(i));
      pb::TensorDescription* description = output->mutable_tensor_description();
      description->set_dtype(static_cast<pb::DataType>(e.outputs[i].first));
      e.outputs[i].second.ToProto(description->mutable_shape());
    }
    pb::AllocatorMemoryUsed* memory = node->add_memory();
    memory->set_allocator_name("cpu");
    memory->set_total_bytes(static_cast<int64_t>(e.bytes));
  }
}

}  // namespace millrace
