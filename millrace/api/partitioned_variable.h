// Variables that are partitioned into several parts, possibly on several tasks.
//
//   PartitionedVar w(scope, "embedding", {1000000, 64}, init::RandomUniform(), FixedSizePartitioner(4));
//   Output rows = EmbeddingLookup(scope, w, ids);
//
// In a scope with a ReplicaDeviceSetter the parts are spread over the parameter servers. Checkpoints store one tensor
// "embedding" in slices, which another number of parts, or an unpartitioned variable, can restore.
#pragma once

#include <string>
#include <vector>

#include "millrace/api/variable.h"
#include "millrace/api/variable_slice.h"

namespace millrace {

// `parts` parts along `axis`, but no more than that dimension has elements.
Partitioner FixedSizePartitioner(int64_t parts, int axis = 0);

struct VariableAxisSizeOptions {
  int64_t max_part_bytes = 0;
  int axis = 0;
  int64_t bytes_per_string = 16;
  int64_t max_parts = 0;  // 0 means no limit
};
// As few parts as keep each within max_part_bytes; a part has at least one row.
Partitioner VariableAxisSizePartitioner(const VariableAxisSizeOptions& options);

struct MinMaxOptions {
  int64_t max_parts = 1;
  int axis = 0;
  int64_t min_part_bytes = 256 << 10;
  int64_t bytes_per_string = 16;
};
// As many parts as leave each at least min_part_bytes, but no more than max_parts.
Partitioner MinMaxPartitioner(const MinMaxOptions& options);

// Cheap to copy. Each part is a Var, "name/part_0" and so on, listed in GlobalVariables. Optimizers update the parts;
// losses may use the parts or the whole.
class PartitionedVar {
 public:
  PartitionedVar() = default;
  // Rows are distributed evenly; if they do not divide evenly, the first parts have one more. An initial value of the
  // whole shape is split; other initializers run once per part. The scope fails with INVALID_ARGUMENT if the
  // partitioner splits more than one dimension or returns more parts than there are elements.
  PartitionedVar(const Scope& scope, absl::string_view name, const Shape& shape, const Initializer& init,
                 const Partitioner& partitioner, const VarOptions& options = {});
  // Partitioned as the scope says (Scope::WithPartitioner). If it says nothing, the only part is a whole Var called
  // `name`.
  PartitionedVar(const Scope& scope, absl::string_view name, const Shape& shape, const Initializer& init,
                 const VarOptions& options = {});

  const std::string& name() const { return name_; }
  const Shape& shape() const { return shape_; }
  DType dtype() const { return dtype_; }
  // The dimension that is split; 0 if there is only one part.
  int axis() const { return axis_; }
  const std::vector<Var>& parts() const { return parts_; }
  bool empty() const { return parts_.empty(); }
  // See Var::reused.
  bool reused() const { return !parts_.empty() && parts_[0].reused(); }

  // The whole value, concatenated on the device of `scope`.
  Output Value(const Scope& scope) const;
  // Assigns to every part its slice of `value`.
  Operation Assign(const Scope& scope, const Input& value) const;

 private:
  std::string name_;
  Shape shape_;
  DType dtype_ = DType::kInvalid;
  int axis_ = 0;
  std::vector<Var> parts_;
};

// How the rows of a table are distributed among n parts. kMod (TensorFlow's default): row `id` is row id / n of part id
// % n. kDiv: each part has a contiguous range of rows, as in a PartitionedVar.
enum class LookupStrategy { kMod, kDiv };

// The rows `ids` (int32 or int64, of any shape) of a partitioned table, each looked up on the device of its part. The
// gradients are IndexedSlices of the parts.
Output EmbeddingLookup(const Scope& scope, const std::vector<Var>& parts, const Input& ids,
                       LookupStrategy strategy = LookupStrategy::kMod);
// kDiv by default, which matches the rows of table.Value(). The scope fails with INVALID_ARGUMENT if the table is not
// split along its rows.
Output EmbeddingLookup(const Scope& scope, const PartitionedVar& table, const Input& ids,
                       LookupStrategy strategy = LookupStrategy::kDiv);

}  // namespace millrace
