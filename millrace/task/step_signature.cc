#include "millrace/task/step_signature.h"

#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_join.h"

namespace millrace {
namespace {

// Finds tensors of a graph by name. The error says which kind of name was not found.
StatusOr<std::vector<Endpoint>> FindAll(const Graph& graph, const std::vector<std::string>& names,
                                        absl::string_view what) {
  std::vector<Endpoint> found;
  found.reserve(names.size());
  for (const std::string& name : names) {
    const Node* const node = graph.FindNode(absl::string_view(name).substr(0, name.rfind(':')));
    if (node != nullptr && node->num_outputs() == 0) {
      return InvalidArgument(what, " ", name, ": node ", node->name(), " (", node->type(),
                             ") has no outputs; run it as a target instead");
    }
    StatusOr<Endpoint> e = graph.FindEndpoint(name);
    if (!e.ok()) return WithPrefix(absl::StrCat(what, " ", name, ": "), e.status());
    found.push_back(*e);
  }
  return found;
}

StatusOr<std::vector<Node*>> FindTargets(const Graph& graph, const std::vector<std::string>& names) {
  std::vector<Node*> found;
  for (const std::string& name : names) {
    absl::string_view node_name = name;
    // A target may be written as a tensor; the node is meant.
    if (const size_t colon = node_name.rfind(':'); colon != absl::string_view::npos) {
      node_name = node_name.substr(0, colon);
    }
    Node* node = graph.FindNode(node_name);
    if (node == nullptr) return NotFound("target ", name, ": there is no node of that name in the graph");
    found.push_back(node);
  }
  return found;
}

bool IsPlaceholder(const Node& node) { return node.is_type("Placeholder") || node.is_type("PlaceholderV2"); }

// The declared shape of a placeholder, which feeds must match.
PartialShape DeclaredShape(const Graph& graph, const Node& placeholder) {
  const PartialShape shape = placeholder.AttrOr<PartialShape>("shape", PartialShape());
  // Graphs of old producers write "unknown" as a scalar shape.
  return shape.rank() == 0 && graph.versions().producer() < 24 ? PartialShape() : shape;
}

// Replaces a fed tensor that is not a placeholder by a placeholder of unknown shape: the fed value may differ from what
// the node would have computed, so no pass may draw conclusions from the node.
StatusOr<Endpoint> CutAtFeed(Graph* graph, const Endpoint& feed) {
  NodeSpec spec;
  spec.name = graph->UniqueName(absl::StrCat(feed.node->name(), "/_fed_", feed.index));
  spec.op = "Placeholder";
  spec.attrs["dtype"].set_type(static_cast<pb::DataType>(BaseType(feed.dtype())));
  spec.attrs["shape"].mutable_shape()->set_unknown_rank(true);
  MR_ASSIGN_OR_RETURN(Node * cut, graph->AddNode(std::move(spec)));
  graph->SetRequestedDevice(cut, feed.node->requested_device());
  for (Node* node : graph->nodes()) {
    for (int i = 0; i < node->num_inputs(); ++i) {
      if (node->input(i) == feed) graph->SetInput(node, i, cut->output(0));
    }
  }
  return cut->output(0);
}

}  // namespace

Status FeedTypes::Check(absl::Span<const Tensor> feeds) const {
  if (feeds.size() != types.size()) {
    return InvalidArgument("the step takes ", types.size(), " feeds, ", feeds.size(), " were given");
  }
  for (size_t i = 0; i < feeds.size(); ++i) {
    const Tensor& value = feeds[i];
    if (value.dtype() != types[i]) {
      // TensorFlow's code for this error, which it considers an internal one.
      return Internal("the feed for ", names[i], " is ", DTypeName(value.dtype()), ", but ", DTypeName(types[i]),
                      " is expected");
    }
    if (!shapes[i].IsCompatibleWith(value.shape())) {
      return InvalidArgument("the feed for ", names[i], " has shape ", value.shape().ToString(),
                             ", but the placeholder was declared with shape ", shapes[i].ToString());
    }
  }
  return absl::OkStatus();
}

StatusOr<FeedTypes> CheckSignature(const Graph& graph, const CallableSpec& spec) {
  if (spec.fetches.empty() && spec.targets.empty()) {
    return InvalidArgument("nothing to do: neither a tensor to fetch nor a node to run was given");
  }
  FeedTypes result;
  result.names = spec.feeds;
  MR_ASSIGN_OR_RETURN(const std::vector<Endpoint> feeds, FindAll(graph, spec.feeds, "feed"));
  MR_ASSIGN_OR_RETURN(const std::vector<Endpoint> fetches, FindAll(graph, spec.fetches, "fetch"));
  MR_RETURN_IF_ERROR(FindTargets(graph, spec.targets).status());
  absl::flat_hash_set<Endpoint> fed;
  for (size_t i = 0; i < feeds.size(); ++i) {
    if (!fed.insert(feeds[i]).second) return InvalidArgument("tensor ", spec.feeds[i], " is fed twice");
    result.types.push_back(BaseType(feeds[i].dtype()));
    PartialShape shape;
    if (IsPlaceholder(*feeds[i].node)) shape = DeclaredShape(graph, *feeds[i].node);
    result.shapes.push_back(std::move(shape));
  }
  for (size_t i = 0; i < fetches.size(); ++i) {
    if (fed.contains(fetches[i])) return InvalidArgument("tensor ", spec.fetches[i], " is both fed and fetched");
  }
  return result;
}

StatusOr<PassContext> ResolveSignature(Graph* graph, const CallableSpec& spec) {
  PassContext context;
  MR_ASSIGN_OR_RETURN(context.feeds, FindAll(*graph, spec.feeds, "feed"));
  MR_ASSIGN_OR_RETURN(context.fetches, FindAll(*graph, spec.fetches, "fetch"));
  MR_ASSIGN_OR_RETURN(context.targets, FindTargets(*graph, spec.targets));
  for (Endpoint& feed : context.feeds) {
    if (IsPlaceholder(*feed.node)) {
      // Pruning removes it from the graph, so its shape is not inferred any more.
      graph->SetOutputShape(feed.node, feed.index, DeclaredShape(*graph, *feed.node));
    } else {
      MR_ASSIGN_OR_RETURN(feed, CutAtFeed(graph, feed));
    }
  }
  return context;
}

std::string SignatureKey(const CallableSpec& spec) {
  return absl::StrCat(absl::StrJoin(spec.feeds, ","), ";", absl::StrJoin(spec.fetches, ","), ";",
                      absl::StrJoin(spec.targets, ","));
}

}  // namespace millrace
