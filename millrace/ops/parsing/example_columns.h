// Parsing of batches of Examples, shared by ParseExample and its variants.
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
  // The shape of one example's values. With a first dimension of -1 examples have variable numbers of rows, and a batch
  // is padded.
  PartialShape shape;
  // The value for an example without the feature; empty if the feature is required. For a column of variable length,
  // the padding (one element).
  Tensor default_value;

  bool variable() const { return shape.rank() > 0 && shape.dim(0) < 0; }
  // The number of elements of one example, or of one row if the number of rows is variable.
  int64_t stride() const;
};

struct RaggedColumn {
  std::string key;
  DType dtype = DType::kInvalid;
  DType splits = DType::kInvalid;
};

// The columns to extract from each example.
struct ExampleColumns {
  std::vector<SparseColumn> sparse;
  std::vector<DenseColumn> dense;
  std::vector<RaggedColumn> ragged;

  // INVALID_ARGUMENT if a default value does not match its shape.
  Status CheckDefaults() const;
};

// INVALID_ARGUMENT unless all dimensions except the first are known and, with `fully`, the first too.
Status CheckDenseShapes(absl::Span<const PartialShape> shapes, bool fully = false);

struct SerializedExamples {
  absl::Span<const std::string> bytes;
  absl::Span<const std::string> names;  // for messages; may be empty
  bool batched = true;                  // if false, there is one example, and tensors have no batch dimension

  // The prefix of messages about an example: "Name: train-3, ".
  std::string Name(int64_t example) const;
};

// One tensor per column, in column order, allocated from the context.
struct ParsedColumns {
  std::vector<Tensor> sparse_indices, sparse_values, sparse_shapes, dense_values, ragged_values, ragged_splits;
};

// Parses the features of all examples (for SequenceExamples, of their contexts) in parallel. The result does not depend
// on the number of threads, nor does the error, which is that of the first failing example.
StatusOr<ParsedColumns> ParseExamples(KernelContext& ctx, const SerializedExamples& examples,
                                      const ExampleColumns& columns);

// Maps each key to the columns that use it.
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

// Calls fn for each example, in parallel if worthwhile, and returns the error of the first failing example.
Status ForEachExample(KernelContext& ctx, absl::Span<const std::string> bytes,
                      absl::FunctionRef<Status(int64_t example)> fn);

// The types of features.
using FeatureTypes = Types<float, int64_t, std::string>;

// The row splits of ragged rows of the given lengths, a tensor of lengths.size() + 1. INVALID_ARGUMENT if they do not
// fit into `dtype`.
StatusOr<Tensor> SplitsTensor(KernelContext& ctx, DType dtype, absl::Span<const int64_t> lengths);

}  // namespace millrace
