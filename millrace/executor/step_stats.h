// Statistics of a step, node by node.
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

// A tensor that was received from another task.
struct Transfer {
  std::string tensor = {};
  std::string from = {};  // devices
  std::string to = {};
  int64_t bytes = 0;
  // On the receiver's clock: when it requested the tensor, and when it had it.
  int64_t start_nanos = 0;
  int64_t end_nanos = 0;
  // On the sender's clock: when it began to send; 0 if unknown.
  int64_t sent_micros = 0;
};

// The node name of transfers in StepStats, as in TensorFlow. Their label is "[BYTES] TENSOR from DEVICE to DEVICE",
// they are listed under the receiving device, and scheduled_micros is Transfer::sent_micros.
inline constexpr char kRecvTensor[] = "RecvTensor";
// The node name of the calls by which a master runs the parts of other tasks, as the master saw them. Their label is
// "RunGraph at TASK".
inline constexpr char kRunGraph[] = "RunGraph";

// Thread-safe. Filled by runs with a trace; other runs have none.
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

// Sets the start and end of an event that belongs to no node.
void SetTimes(int64_t start_nanos, int64_t end_nanos, pb::NodeExecStats* event);

}  // namespace millrace
