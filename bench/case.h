// Shared by the cases of millrace_bench: flags, errors, results as JSON lines, random batches.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

#include "millrace/graph/graph_builder.h"
#include "millrace/graph/graph_def.h"
#include "millrace/millrace.h"

namespace millrace::bench {

struct Flags {
  int threads = 1;
  std::string cases = "null,scalar,chain,mlp_sgd,mlp_adam,mlp_large,conv_mnist,resnet20";
  double seconds = 2;
  std::string graph;
  std::string write_graph;
  std::string trace;
};

// Prints an error and exits.
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

// Prints one result; `more` is JSON text with further fields, starting with a comma.
void Emit(const Flags& flags, const char* name, const char* unit, double value, const std::string& more = "");

SessionOptions Options(const Flags& flags);

// Writes a Chrome trace of one step to the file given by --trace.
void WriteTrace(const Flags& flags, ClientSession& session, const ClientSession::Feeds& feeds, const Output& loss,
                const Operation& train);

// Random batches: numbers uniform in [0, 1), and class labels below `classes`.
Tensor RandomFeatures(const Shape& shape);
Tensor RandomLabels(int rows, int classes);

}  // namespace millrace::bench
