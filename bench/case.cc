#include "bench/case.h"

#include <fstream>
#include <random>

#include "absl/strings/str_format.h"
#include "millrace/session/chrome_trace.h"

namespace millrace::bench {

void Emit(const Flags& flags, const char* name, const char* unit, double value, const std::string& more) {
  absl::PrintF(
      "{\"side\": \"millrace\", \"case\": \"%s\", \"setting\": \"%d thread%s\", \"threads\": %d, \"unit\": \"%s\", "
      "\"value\": %.6g%s}\n",
      name, flags.threads, flags.threads > 1 ? "s" : "", flags.threads, unit, value, more);
  std::fflush(stdout);
}

SessionOptions Options(const Flags& flags) {
  SessionOptions options;
  options.intra_op_threads = flags.threads;
  options.inter_op_threads = flags.threads;
  return options;
}

Tensor RandomFeatures(const Shape& shape) {
  Tensor t(DType::kFloat, shape);
  std::mt19937 random(1);
  for (float& x : t.flat<float>()) x = std::uniform_real_distribution<float>()(random);
  return t;
}

Tensor RandomLabels(int rows, int classes) {
  Tensor t(DType::kInt32, Shape({rows}));
  std::mt19937 random(2);
  for (int32_t& x : t.flat<int32_t>()) x = std::uniform_int_distribution<int>(0, classes - 1)(random);
  return t;
}

void WriteTrace(const Flags& flags, ClientSession& session, const ClientSession::Feeds& feeds, const Output& loss,
                const Operation& train) {
  RunOptions options;
  options.trace = true;
  Tensors results;
  RunMetadata metadata;
  // Warm-up: the first steps pay one-time costs.
  for (int i = 0; i < 3; ++i) {
    metadata.Clear();
    Check(session.Run(options, feeds, {loss}, {train}, &results, &metadata));
  }
  std::ofstream(flags.trace) << ChromeTrace(metadata.step_stats());
}

}  // namespace millrace::bench
