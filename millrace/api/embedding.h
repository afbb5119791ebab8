// Lookups of several rows of a table for each example, combined into one: TensorFlow's tf.nn.embedding_lookup_sparse.
//
//   PartitionedVar words(scope, "words", {1000000, 64}, init::RandomUniform(), FixedSizePartitioner(4));
//   Output of_documents = SafeEmbeddingLookupSparse(scope, words, {indices, ids, shape}, {}, {.combiner =
//   Combiner::kMean});
//
// EmbeddingLookup, of single rows, is in partitioned_variable.h.
#pragma once

#include <optional>

#include "millrace/api/partitioned_variable.h"
#include "millrace/api/sparse_output.h"

namespace millrace {

// How the rows of an example become one. With weights w: sum(w x); that divided by sum(w); that divided by the square
// root of sum(w^2).
enum class Combiner { kSum, kMean, kSqrtN };

// "sum", "mean" or "sqrtn", as TensorFlow spells them.
StatusOr<Combiner> ParseCombiner(absl::string_view name);

// Rows with an L2 norm above `max_norm` are scaled down to it.
Output EmbeddingLookupMaxNorm(const Scope& scope, const PartitionedVar& table, const Input& ids, double max_norm,
                              LookupStrategy strategy = LookupStrategy::kDiv);

struct EmbeddingLookupSparseOptions {
  Combiner combiner = Combiner::kMean;
  // Applied to each row before rows are combined.
  std::optional<double> max_norm = std::nullopt;
  LookupStrategy strategy = LookupStrategy::kDiv;
};
// `ids` (int32 or int64) is [examples, ids of an example], in order; `weights`, which may be empty, has the same
// indices. The result is [examples, columns of the table]; an example without ids gets zeros. Each row is fetched
// once, however many examples have it, so the gradient of a part has unique indices.
Output EmbeddingLookupSparse(const Scope& scope, const PartitionedVar& table, const SparseOutput& ids,
                             const SparseOutput& weights = {}, const EmbeddingLookupSparseOptions& options = {});
Output EmbeddingLookupSparse(const Scope& scope, const std::vector<Var>& parts, const SparseOutput& ids,
                             const SparseOutput& weights = {},
                             const EmbeddingLookupSparseOptions& options = {.strategy = LookupStrategy::kMod});

struct SafeEmbeddingLookupSparseOptions {
  Combiner combiner = Combiner::kMean;
  std::optional<double> max_norm = std::nullopt;
  LookupStrategy strategy = LookupStrategy::kDiv;
  // The row of an example without valid ids; zeros by default.
  std::optional<int64_t> default_id = std::nullopt;
  // False if the caller knows that no id is negative; weights are still looked at.
  bool may_have_invalid_ids = true;
};
// The same for ids as they come: negative ids are left out, and so are those whose weight is not positive, unless rows
// are summed. Of ids of a higher rank the last dimension is combined: [a, b, ids] gives [a, b, columns].
Output SafeEmbeddingLookupSparse(const Scope& scope, const PartitionedVar& table, const SparseOutput& ids,
                                 const SparseOutput& weights = {},
                                 const SafeEmbeddingLookupSparseOptions& options = {});

}  // namespace millrace
