// The course of a training over its whole time, in bounded memory.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace millrace::dashboard {

// The lowest, middle and highest of several values.
struct Spread {
  double low = 0, middle = 0, high = 0;
  // Of the finite ones; nullopt if there are none.
  static std::optional<Spread> Of(std::vector<double> values);
};

struct Sample {
  double seconds = 0;  // of the job's time
  std::optional<int64_t> step = {};
  std::optional<Spread> steps_per_second = {}, loss = {};  // over the tasks
  int bad_losses = 0;                                      // tasks whose loss is not finite
};

// Keeps samples over the whole time of a job: when there are too many, each two neighbours become one. A sample keeps
// its number, so that viewers are sent only what changed. Not thread-safe.
class History {
 public:
  explicit History(size_t most = 400) : most_(most) {}

  // `sample` is later than all before it. Those that come closer to each other than the resolution are joined.
  void Add(Sample sample);
  // By number, which grows with time.
  const std::map<int64_t, Sample>& samples() const { return samples_; }

 private:
  void Thin();

  const size_t most_;
  double resolution_ = 0;  // the least number of seconds between two samples
  int64_t last_ = 0;
  std::map<int64_t, Sample> samples_;
};

}  // namespace millrace::dashboard
