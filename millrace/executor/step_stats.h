// What a step did, node by node.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "millrace/base/clock.h"
#include "millrace/base/mutex.h"
#include "millrace/graph/graph.h"
#include "millrace/proto/step_stats.pb.h"
#include "millrace/runtime/kernel.h"

namespace millrace {

// A tensor that came from another task.
struct Transfer {
  std::string tensor = {};
  std::string from = {};  // devices
  std::string to = {};
  int64_t bytes = 0;
  // By the clock of the task that wants it: when it asked, and when it had it.
  int64_t start_nanos = 0;
  int64_t end_nanos = 0;
  // By the clock of the task that has it: when it began to send; 0: not known.
  int64_t sent_micros = 0;
};

// The name of transfers among the nodes of a StepStats, as in TensorFlow. Their label is "[BYTES] TENSOR from DEVICE to DEVICE", they stand with
// the device that they go to, and scheduled_micros is Transfer::sent_micros.
inline constexpr char kRecvTensor[] = "RecvTensor";
// And that of the calls by which a master runs the parts of other tasks, as the master saw them. Their label is "RunGraph at TASK".
inline constexpr char kRunGraph[] = "RunGraph";

// Thread-safe. Filled by a run that was asked for a trace; a run that was not never sees one.
class StepStatsCollector {
 public:
  explicit StepStatsCollector(Clock* clock = Clock::Real()) : clock_(clock) {}

  int64_t NowNanos() const { return absl::ToUnixNanos(clock_->Now()); }
  void Record(const Node& node, const Device& device, int64_t start_nanos, int64_t end_nanos,
              absl::Span<const Tensor> outputs);

  void RecordTransfer(Transfer transfer);

  void ToProto(pb::StepStats* stats) const;

 private:
  struct Entry {
    const Node* node;
    const Device* device;
    int64_t start_nanos;
    int64_t end_nanos;
    int thread;
    std::vector<std::pair<DType, Shape>> outputs;
    size_t bytes;
  };

  Clock* const clock_;
  mutable Mutex mu_;
  std::vector<Entry> entries_ ABSL_GUARDED_BY(mu_);
  std::vector<Transfer> transfers_ ABSL_GUARDED_BY(mu_);
};

// Start and end of an event that lies in no node.
void SetTimes(int64_t start_nanos, int64_t end_nanos, pb::NodeExecStats* event);

// The same as a Chrome trace (chrome://tracing, Perfetto): JSON text. Each device is a process; train/timeline.h shows several tasks on one clock.
std::string ChromeTrace(const pb::StepStats& stats);

}  // namespace millrace
