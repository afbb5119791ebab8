// Counts successful completions.
#pragma once

#include <atomic>
#include <cstdint>

#include "absl/time/time.h"

namespace millrace {

// The number of successful steps or parts, the time of the last one, and their total duration. Thread-safe, and cheap
// enough to call in every step.
class FinishCounter {
 public:
  void Count(absl::Time now, absl::Duration took = absl::ZeroDuration()) {
    count_.fetch_add(1, std::memory_order_relaxed);
    took_nanos_.fetch_add(absl::ToInt64Nanoseconds(took), std::memory_order_relaxed);
    last_micros_.store(absl::ToUnixMicros(now), std::memory_order_relaxed);
  }
  int64_t count() const { return count_.load(std::memory_order_relaxed); }
  // Microseconds since 1970; 0 if there was none.
  int64_t last_micros() const { return last_micros_.load(std::memory_order_relaxed); }
  // The total of all durations.
  int64_t took_micros() const { return took_nanos_.load(std::memory_order_relaxed) / 1000; }

 private:
  std::atomic<int64_t> count_{0};
  std::atomic<int64_t> last_micros_{0};
  std::atomic<int64_t> took_nanos_{0};
};

}  // namespace millrace
