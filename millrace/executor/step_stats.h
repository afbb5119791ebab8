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

// Thread-safe. Filled by a run that was asked for a trace; a run that was not never sees one.
class StepStatsCollector {
 public:
  explicit StepStatsCollector(Clock* clock = Clock::Real()) : clock_(clock) {}

  int64_t NowNanos() const { return absl::ToUnixNanos(clock_->Now()); }
  void Record(const Node& node, const Device& device, int64_t start_nanos, int64_t end_nanos,
              absl::Span<const Tensor> outputs);

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
};

// The same as a Chrome trace (chrome://tracing, Perfetto): JSON text.
std::string ChromeTrace(const pb::StepStats& stats);

}  // namespace millrace
