// What the cases of millrace_bench share.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

#include "absl/strings/str_format.h"
#include "millrace/graph/graph_builder.h"
#include "millrace/graph/graph_def.h"
#include "millrace/session/session.h"

namespace millrace::bench {

struct Flags {
  int threads = 1;
  std::string cases = "null,scalar,chain,mlp_sgd,mlp_adam,mlp_large";
  double seconds = 2;
  std::string graph;
  std::string write_graph;
};

// A benchmark has nothing better to do with an error than to show it and end.
inline void Check(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "millrace_bench: %s\n", status.ToString().c_str());
  std::exit(1);
}
template <typename T>
T Check(StatusOr<T> result) {
  Check(result.status());
  return *std::move(result);
}

// One result, as a line of JSON in the form of bench/peers/common.py.
inline void Emit(const Flags& flags, const char* name, const char* unit, double value,
                 const std::string& more = "") {
  absl::PrintF(
      "{\"side\": \"millrace\", \"case\": \"%s\", \"setting\": \"%d thread%s\", \"threads\": %d, \"unit\": \"%s\", "
      "\"value\": %.6g%s}\n",
      name, flags.threads, flags.threads > 1 ? "s" : "", flags.threads, unit, value, more);
  std::fflush(stdout);
}

inline SessionOptions Options(const Flags& flags) {
  SessionOptions options;
  options.intra_op_threads = flags.threads;
  options.inter_op_threads = flags.threads;
  return options;
}

}  // namespace millrace::bench
