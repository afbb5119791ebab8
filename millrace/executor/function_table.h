// The functions of a graph, compiled when kernels first call them.
#pragma once

#include <memory>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "millrace/base/mutex.h"
#include "millrace/executor/compile_graph.h"
#include "millrace/runtime/function_runner.h"

namespace millrace {

// Compiles each function once for each set of attributes, with all calls inlined except recursive ones, which use this
// table at run time. Thread-safe.
//
// The function "SymbolicGradient" with the attr f is the gradient of f.
class FunctionTable : public FunctionRunner {
 public:
  explicit FunctionTable(CompileOptions options) : options_(std::move(options)) {}

  // The maximum depth of nested calls; a deeper one fails the step with RESOURCE_EXHAUSTED.
  static constexpr int kMaxDepth = 2000;

  // Sets the library to that of `graph`, which must contain all earlier functions.
  void UseLibrary(const Graph& graph);
  StatusOr<std::shared_ptr<CallableFunction>> Instantiate(const pb::NameAttrList& function) override;

 private:
  StatusOr<std::shared_ptr<CallableFunction>> Compile(const Graph& library, const pb::NameAttrList& function) const;

  const CompileOptions options_;
  Mutex mu_;
  Graph library_ ABSL_GUARDED_BY(mu_);  // without nodes
  absl::flat_hash_map<std::string, std::shared_ptr<CallableFunction>> functions_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace
