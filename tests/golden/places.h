// Where the nodes of traced steps ran.
#pragma once

#include <map>
#include <string>

#include "millrace/graph/graph.h"
#include "millrace/session/session.h"

namespace millrace::golden {

// A step on a GPU may be right and yet have been computed by the CPU; this is what finds it.
class Places {
 public:
  // Counts the nodes of a step of `graph`. DATA_LOSS names a node that asks for a GPU, has a kernel there for its op
  // and types, and ran on the CPU, unless it has to be with a node that has none.
  Status Note(const Graph& graph, const RunMetadata& step);

  int64_t on_gpu() const { return on_gpu_; }
  int64_t on_cpu() const { return on_cpu_; }
  // The ops on the CPU, the most frequent first: "AsString 12, Print 3".
  std::string CpuOps() const;

 private:
  int64_t on_gpu_ = 0;
  int64_t on_cpu_ = 0;
  std::map<std::string, int> cpu_ops_;
};

}  // namespace millrace::golden
