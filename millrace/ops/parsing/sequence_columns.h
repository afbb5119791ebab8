// Parsing of the feature lists of batches of SequenceExamples. Their contexts are parsed like Examples
// (example_columns.h).
#pragma once

#include <vector>

#include "millrace/ops/parsing/example_columns.h"

namespace millrace {

struct DenseListColumn {
  std::string key;
  DType dtype = DType::kInvalid;
  Shape shape;                  // of one step
  bool may_be_missing = false;  // an example without the list has no steps
};

// The columns to extract from the feature lists of each example.
struct ListColumns {
  std::vector<SparseColumn> sparse;
  std::vector<DenseListColumn> dense;
  std::vector<RaggedColumn> ragged;
};

struct ParsedLists {
  // Indices are (example, step, position of the value in its step), without the example if there is no batch.
  std::vector<Tensor> sparse_indices, sparse_values, sparse_shapes;
  // Steps beyond the length of an example's list are zeros or empty strings.
  std::vector<Tensor> dense_values, dense_lengths;
  // Outer splits: steps of each example. Inner splits: values of each step.
  std::vector<Tensor> ragged_values, ragged_outer_splits, ragged_inner_splits;
};

// Parses the feature lists of all examples in parallel. The result does not depend on the number of threads.
StatusOr<ParsedLists> ParseFeatureLists(KernelContext& ctx, const SerializedExamples& examples,
                                        const ListColumns& columns);

}  // namespace millrace
