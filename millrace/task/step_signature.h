// Signatures (feeds, fetches and targets by name), resolved in a graph.
#pragma once

#include <string>
#include <vector>

#include "millrace/graph/callable_spec.h"
#include "millrace/graph/graph.h"
#include "millrace/graph/passes/pass.h"

namespace millrace {

// The types of a step's feeds and, for placeholders, their declared shapes.
struct FeedTypes {
  std::vector<std::string> names;
  std::vector<DType> types;
  std::vector<PartialShape> shapes;

  // INVALID_ARGUMENT or, for a wrong type, INTERNAL, as in TensorFlow; names the feed.
  Status Check(absl::Span<const Tensor> feeds) const;
};

// Checks a signature against the graph. NOT_FOUND for an unknown name, INVALID_ARGUMENT for a tensor fed twice, one
// that is both fed and fetched, a fetch of a node without outputs, or nothing to do.
StatusOr<FeedTypes> CheckSignature(const Graph& graph, const CallableSpec& spec);

// Resolves the names in the step's own copy of the graph, for pruning and passes. A fed tensor that is not a
// placeholder is replaced by one.
StatusOr<PassContext> ResolveSignature(Graph* graph, const CallableSpec& spec);

// A string that identifies the signature.
std::string SignatureKey(const CallableSpec& spec);

}  // namespace millrace
