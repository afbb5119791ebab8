// Variables in several parts, which may be held by several tasks.
//
//   PartitionedVar w(scope, "embedding", {1000000, 64}, init::RandomUniform(), FixedSizePartitioner(4));
//   Output rows = EmbeddingLookup(scope, w, ids);
//
// In a scope with a ReplicaDeviceSetter each part gets its own parameter server. Checkpoints have one tensor "embedding" in slices, so that
// another number of parts, or one whole variable, can restore it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "millrace/api/variable.h"
#include "millrace/api/variable_slice.h"

namespace millrace {

// The number of parts along each dimension; at most one of them may be above 1.
using Partitioner = std::function<std::vector<int64_t>(const Shape& shape, DType dtype)>;

// `parts` along `axis`, or as many as that has elements.
Partitioner FixedSizePartitioner(int64_t parts, int axis = 0);

struct VariableAxisSizeOptions {
  int64_t max_part_bytes = 0;
  int axis = 0;
  int64_t bytes_per_string = 16;
  int64_t max_parts = 0;  // 0: no limit
};
// As few as keep each within max_part_bytes, as far as one row each allows.
Partitioner VariableAxisSizePartitioner(const VariableAxisSizeOptions& options);

struct MinMaxOptions {
  int64_t max_parts = 1;
  int axis = 0;
  int64_t min_part_bytes = 256 << 10;
  int64_t bytes_per_string = 16;
};
// As many as leave each at least min_part_bytes, but no more than max_parts.
Partitioner MinMaxPartitioner(const MinMaxOptions& options);

// A cheap value. Each part is a Var, "name/part_0" and so on, among GlobalVariables; optimizers change the parts, and losses may use
// either them or the whole.
class PartitionedVar {
 public:
  PartitionedVar() = default;
  // Rows are dealt out evenly; the first parts have one more where they do not come out even. An initial value of the whole shape is cut up;
  // others are made part by part. INVALID_ARGUMENT, as the scope's error, for a partitioner that cuts more than one dimension or asks for more parts than
  // there are elements.
  PartitionedVar(const Scope& scope, absl::string_view name, const Shape& shape, const Initializer& init, const Partitioner& partitioner,
                 const VarOptions& options = {});

  const std::string& name() const { return name_; }
  const Shape& shape() const { return shape_; }
  DType dtype() const { return dtype_; }
  // The dimension that is cut; 0 when there is one part.
  int axis() const { return axis_; }
  const std::vector<Var>& parts() const { return parts_; }
  bool empty() const { return parts_.empty(); }

  // All of it, joined where `scope` says.
  Output Value(const Scope& scope) const;
  // Gives every part its piece of `value`.
  Operation Assign(const Scope& scope, const Input& value) const;

 private:
  std::string name_;
  Shape shape_;
  DType dtype_ = DType::kInvalid;
  int axis_ = 0;
  std::vector<Var> parts_;
};

// How rows are dealt out among the parts of a table: row `id` is row id / n of part id % n, or each part has a run of neighbours. The parts of a
// PartitionedVar are runs, so kDiv finds the rows where Value has them; kMod is TensorFlow's default.
enum class LookupStrategy { kMod, kDiv };

// The rows `ids` (of any shape, int32 or int64) of a table in parts, each looked up where its part is. Gradients are slices of the parts.
Output EmbeddingLookup(const Scope& scope, const std::vector<Var>& parts, const Input& ids, LookupStrategy strategy = LookupStrategy::kMod);
// Div by default, so that the rows are those of the whole. INVALID_ARGUMENT when it is not cut along rows.
Output EmbeddingLookup(const Scope& scope, const PartitionedVar& table, const Input& ids, LookupStrategy strategy = LookupStrategy::kDiv);

}  // namespace millrace
