// Batches of Examples to tensors: what ParseExample and its relatives share.
#pragma once

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "millrace/ops/parsing/feature.h"
#include "millrace/runtime/kernel.h"
#include "millrace/tensor/dispatch.h"
#include "millrace/tensor/tensor.h"

namespace millrace {

struct SparseColumn {
  std::string key;
  DType dtype = DType::kInvalid;
};

struct DenseColumn {
  std::string key;
  DType dtype = DType::kInvalid;
  // The shape of one example's values. With a first dimension of -1 examples have as many rows as they like,
  // and a batch is padded.
  PartialShape shape;
  // What an example without the feature has; empty when it must not be without. The padding, of one
  // element, for a column of variable length.
  Tensor default_value;

  bool variable() const { return shape.rank() > 0 && shape.dim(0) < 0; }
  // Elements of one example, or of one row with a variable number of them.
  int64_t stride() const;
};

struct RaggedColumn {
  std::string key;
  DType dtype = DType::kInvalid;
  DType splits = DType::kInvalid;
};

// What to make of the features of each example.
struct ExampleColumns {
  std::vector<SparseColumn> sparse;
  std::vector<DenseColumn> dense;
  std::vector<RaggedColumn> ragged;

  // INVALID_ARGUMENT when a default value does not fit its shape.
  Status CheckDefaults() const;
};

// INVALID_ARGUMENT unless all dimensions but the first are known and, with `fully`, the first too.
Status CheckDenseShapes(absl::Span<const PartialShape> shapes, bool fully = false);

struct SerializedExamples {
  absl::Span<const std::string> bytes;
  absl::Span<const std::string> names;  // for messages; may be empty
  bool batched = true;                  // false: one example, and tensors without a dimension for the batch

  // "Name: train-3, ": how a message about an example begins.
  std::string Name(int64_t example) const;
};

// In the order of the columns. A tensor for each, memory from the context.
struct ParsedColumns {
  std::vector<Tensor> sparse_indices, sparse_values, sparse_shapes, dense_values, ragged_values, ragged_splits;
};

// Reads the features of all examples (those of the context, for SequenceExamples), in parallel. The result does
// not depend on the number of threads, nor does the error: it is that of the first example which has one.
StatusOr<ParsedColumns> ParseExamples(KernelContext& ctx, const SerializedExamples& examples,
                                      const ExampleColumns& columns);

// Numbers of the columns that want each key.
class KeyIndex {
 public:
  void Add(absl::string_view key, int column) { columns_[key].push_back(column); }
  absl::Span<const int> Find(absl::string_view key) const {
    const auto at = columns_.find(key);
    return at == columns_.end() ? absl::Span<const int>() : at->second;
  }

 private:
  absl::flat_hash_map<absl::string_view, std::vector<int>> columns_;
};

// Calls fn for each example, in parallel when there is enough to do, and gives the error of the first example
// that fails.
Status ForEachExample(KernelContext& ctx, absl::Span<const std::string> bytes,
                      absl::FunctionRef<Status(int64_t example)> fn);

// The types that features have.
using FeatureTypes = Types<float, int64_t, std::string>;

// The start offsets of ragged rows, from their lengths: a tensor of lengths.size() + 1. INVALID_ARGUMENT when
// they do not fit `dtype`.
StatusOr<Tensor> SplitsTensor(KernelContext& ctx, DType dtype, absl::Span<const int64_t> lengths);

}  // namespace millrace
