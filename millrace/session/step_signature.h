// What a step is asked for, by name, found in a graph.
#pragma once

#include <string>
#include <vector>

#include "millrace/graph/graph.h"
#include "millrace/graph/passes/pass.h"
#include "millrace/session/session.h"

namespace millrace {

// What may be fed to a step: for each feed its type and, for a placeholder, its declared shape.
struct FeedTypes {
  std::vector<std::string> names;
  std::vector<DType> types;
  std::vector<PartialShape> shapes;

  // INVALID_ARGUMENT or, for a wrong type, INTERNAL as TensorFlow has it; names the feed.
  Status Check(absl::Span<const Tensor> feeds) const;
};

// Checks a signature against the graph. NOT_FOUND for an unknown name, INVALID_ARGUMENT for a tensor fed twice, one that is both fed
// and fetched, a fetch of a node without outputs, or nothing to do.
StatusOr<FeedTypes> CheckSignature(const Graph& graph, const CallableSpec& spec);

// The same names in a graph of the step's own, for pruning and passes. A fed tensor that is no placeholder is cut off by one.
StatusOr<PassContext> ResolveSignature(Graph* graph, const CallableSpec& spec);

// One text for each signature.
std::string SignatureKey(const CallableSpec& spec);

}  // namespace millrace
