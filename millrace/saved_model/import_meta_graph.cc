#include <algorithm>
#include <map>
#include <set>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/strip.h"
#include "millrace/api/scope_state.h"
#include "millrace/api/variable.h"
#include "millrace/graph/graph_def.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/saved_model/graph_attrs.h"
#include "millrace/saved_model/imported_variables.h"
#include "millrace/saved_model/meta_graph.h"

namespace millrace {
namespace {

using api_internal::GraphState;
using api_internal::VariableNodes;

// Puts `prefix` (with its slash) before the names of nodes, wherever a node refers to another one.
void AddPrefix(const std::string& prefix, pb::GraphDef* graph) {
  for (pb::NodeDef& node : *graph->mutable_node()) {
    node.set_name(prefix + node.name());
    for (std::string& input : *node.mutable_input())
      input = absl::StartsWith(input, "^") ? absl::StrCat("^", prefix, input.substr(1)) : prefix + input;
    const auto placed = node.mutable_attr()->find("_class");
    if (placed != node.mutable_attr()->end()) {
      for (std::string& with : *placed->second.mutable_list()->mutable_s()) {
        if (absl::StartsWith(with, "loc:@")) with = absl::StrCat("loc:@", prefix, with.substr(5));
      }
    }
    // Loops of two imports must not share their frames.
    const auto frame = node.mutable_attr()->find("frame_name");
    if (frame != node.mutable_attr()->end()) frame->second.set_s(prefix + frame->second.s());
  }
}

// What becomes part of the graph's state when everything has been checked.
struct Additions {
  std::vector<VariableNodes> variables;
  std::map<const Node*, VariableSlice> slices;
  const Node* global_step = nullptr;
  std::vector<Node*> update_ops;
  std::vector<Endpoint> summaries, losses, regularization_losses;
};

class Collector {
 public:
  Collector(const Scope& scope, const std::string& prefix, const pb::MetaGraphDef& meta)
      : graph_(*scope.graph()), prefix_(prefix), meta_(meta) {}

  Status Collect(Additions* out) const {
    std::set<std::string> trainable;
    MR_RETURN_IF_ERROR(ForEachVariable("trainable_variables", [&](const pb::VariableDef& def) {
      trainable.insert(def.variable_name());
      return absl::OkStatus();
    }));
    for (const char* const collection : {"variables", "local_variables", "trainable_variables"}) {
      MR_RETURN_IF_ERROR(ForEachVariable(collection, [&](const pb::VariableDef& def) -> Status {
        MR_ASSIGN_OR_RETURN(VariableNodes nodes, NodesOf(def));
        const auto known = std::find_if(out->variables.begin(), out->variables.end(),
                                        [&](const VariableNodes& other) { return other.handle == nodes.handle; });
        if (known != out->variables.end()) return absl::OkStatus();
        nodes.trainable = trainable.contains(def.variable_name());
        nodes.local = absl::string_view(collection) == "local_variables";
        out->variables.push_back(nodes);
        if (def.has_save_slice_info_def()) {
          MR_ASSIGN_OR_RETURN(out->slices[nodes.handle], SliceOf(def.save_slice_info_def()));
        }
        return absl::OkStatus();
      }));
    }
    MR_RETURN_IF_ERROR(ForEachVariable("global_step", [&](const pb::VariableDef& def) -> Status {
      MR_ASSIGN_OR_RETURN(const VariableNodes nodes, NodesOf(def));
      out->global_step = nodes.handle;
      return absl::OkStatus();
    }));
    for (const std::string& name : NamesIn("update_ops")) {
      MR_ASSIGN_OR_RETURN(const Endpoint found, Find("update_ops", name));
      out->update_ops.push_back(found.node);
    }
    for (const std::string& name : NamesIn("summaries")) {
      MR_ASSIGN_OR_RETURN(out->summaries.emplace_back(), Find("summaries", name));
    }
    for (const std::string& name : NamesIn("losses")) {
      MR_ASSIGN_OR_RETURN(out->losses.emplace_back(), Find("losses", name));
    }
    for (const std::string& name : NamesIn("regularization_losses")) {
      MR_ASSIGN_OR_RETURN(out->regularization_losses.emplace_back(), Find("regularization_losses", name));
    }
    return absl::OkStatus();
  }

 private:
  template <typename Visit>
  Status ForEachVariable(const std::string& collection, Visit visit) const {
    const auto found = meta_.collection_def().find(collection);
    if (found == meta_.collection_def().end()) return absl::OkStatus();
    for (const std::string& bytes : found->second.bytes_list().value()) {
      pb::VariableDef def;
      if (!def.ParseFromString(bytes)) return DataLoss("an entry of the collection ", collection, " is no variable");
      MR_RETURN_IF_ERROR(WithPrefix(absl::StrCat("collection ", collection, ": "), visit(def)));
    }
    return absl::OkStatus();
  }

  std::vector<std::string> NamesIn(const std::string& collection) const {
    const auto found = meta_.collection_def().find(collection);
    if (found == meta_.collection_def().end()) return {};
    return {found->second.node_list().value().begin(), found->second.node_list().value().end()};
  }

  StatusOr<Endpoint> Find(absl::string_view what, const std::string& name) const {
    StatusOr<Endpoint> found = graph_.FindEndpoint(prefix_ + name);
    if (!found.ok()) return InvalidArgument(what, " names '", name, "', which is not in the graph");
    return found;
  }

  StatusOr<VariableNodes> NodesOf(const pb::VariableDef& def) const {
    VariableNodes nodes;
    const std::string what = absl::StrCat("variable ", def.variable_name());
    MR_ASSIGN_OR_RETURN(const Endpoint handle, Find(what, def.variable_name()));
    nodes.handle = handle.node;
    MR_ASSIGN_OR_RETURN(const Endpoint initializer, Find(what, def.initializer_name()));
    nodes.initializer = initializer.node;
    if (!def.initial_value_name().empty()) {
      MR_ASSIGN_OR_RETURN(nodes.initial_value, Find(what, def.initial_value_name()));
    }
    if (!def.snapshot_name().empty()) {
      MR_ASSIGN_OR_RETURN(nodes.value, Find(what, def.snapshot_name()));
    }
    return nodes;
  }

  static StatusOr<VariableSlice> SliceOf(const pb::SaveSliceInfoDef& def) {
    VariableSlice slice;
    slice.full_name = def.full_name();
    MR_ASSIGN_OR_RETURN(slice.full_shape, Shape::Make(absl::MakeConstSpan(def.full_shape())));
    MR_ASSIGN_OR_RETURN(slice.shape, Shape::Make(absl::MakeConstSpan(def.var_shape())));
    slice.offset.assign(def.var_offset().begin(), def.var_offset().end());
    if (slice.shape.rank() != slice.full_shape.rank() ||
        static_cast<int>(slice.offset.size()) != slice.full_shape.rank())
      return DataLoss("the slice of ", def.full_name(), " has another rank than the whole");
    return slice;
  }

  const Graph& graph_;
  const std::string& prefix_;
  const pb::MetaGraphDef& meta_;
};

}  // namespace

StatusOr<ImportedGraph> ImportMetaGraph(const Scope& scope, pb::MetaGraphDef meta,
                                        const ImportMetaGraphOptions& options) {
  MR_RETURN_IF_ERROR(scope.status());
  RemoveNewDefaultAttrs(&meta);
  pb::GraphDef def;
  def.Swap(meta.mutable_graph_def());
  meta.clear_graph_def();
  const std::string prefix = scope.prefix().empty() ? "" : scope.prefix() + "/";
  Graph* const graph = scope.graph();
  for (const pb::NodeDef& node : def.node()) {
    if (graph->FindNode(prefix + node.name()) != nullptr)
      return AlreadyExists("the graph has a node ", prefix, node.name(), " already; import into a sub-scope");
  }
  if (!prefix.empty()) AddPrefix(prefix, &def);
  if (options.clear_devices) {
    for (pb::NodeDef& node : *def.mutable_node()) node.clear_device();
  }
  const int first = graph->max_id();
  MR_RETURN_IF_ERROR(ImportGraphDef(std::move(def), graph));
  Additions found;
  if (const Status collected = Collector(scope, prefix, meta).Collect(&found); !collected.ok()) {
    graph->RemoveNodes([first](const Node* node) { return node->id() >= first; });
    return collected;
  }
  MR_RETURN_IF_ERROR(InferShapes(graph, /*lenient=*/true));

  GraphState& state = api_internal::StateOf(scope);
  for (VariableNodes& nodes : found.variables) {
    if (!nodes.value) nodes.value = ReadOf(scope, nodes.handle);
    if (nodes.handle == found.global_step && !state.global_step) state.global_step = state.variables.size();
    state.variables.push_back(nodes);
  }
  MR_RETURN_IF_ERROR(scope.status());
  for (auto& [handle, slice] : found.slices) state.slices[handle] = std::move(slice);
  state.update_ops.insert(state.update_ops.end(), found.update_ops.begin(), found.update_ops.end());
  state.summaries.insert(state.summaries.end(), found.summaries.begin(), found.summaries.end());
  for (const Endpoint& loss : found.losses) state.losses.push_back({loss});
  state.regularization_losses.insert(state.regularization_losses.end(), found.regularization_losses.begin(),
                                     found.regularization_losses.end());
  return ImportedGraph(scope, std::move(meta));
}

std::string ImportedGraph::InScope(const std::string& name) const {
  return scope_.prefix().empty() ? name : absl::StrCat(scope_.prefix(), "/", name);
}

StatusOr<Output> ImportedGraph::Tensor(const std::string& name) const {
  MR_ASSIGN_OR_RETURN(const Endpoint found, scope_.graph()->FindEndpoint(InScope(name)));
  return Output(scope_.WithoutOpName(), found);
}

StatusOr<Operation> ImportedGraph::Op(const std::string& name) const {
  Node* const found = scope_.graph()->FindNode(InScope(name));
  if (found == nullptr) return NotFound("the graph has no op ", InScope(name));
  return Operation(scope_.WithoutOpName(), found);
}

StatusOr<std::vector<Operation>> ImportedGraph::Ops(const std::string& collection) const {
  std::vector<Operation> ops;
  std::set<std::string> seen;
  const auto found = meta_.collection_def().find(collection);
  if (found == meta_.collection_def().end()) return ops;
  for (const std::string& name : found->second.node_list().value()) {
    if (!seen.insert(name).second) continue;
    MR_ASSIGN_OR_RETURN(ops.emplace_back(), Op(name.substr(0, name.find(':'))));
  }
  return ops;
}

StatusOr<std::vector<Output>> ImportedGraph::Tensors(const std::string& collection) const {
  std::vector<Output> tensors;
  const auto found = meta_.collection_def().find(collection);
  if (found == meta_.collection_def().end()) return tensors;
  for (const std::string& name : found->second.node_list().value()) {
    MR_ASSIGN_OR_RETURN(tensors.emplace_back(), Tensor(name));
  }
  return tensors;
}

StatusOr<std::unique_ptr<Saver>> ImportedGraph::MakeSaver(SaverOptions options) const {
  if (meta_.saver_def().restore_op_name().empty()) return FailedPrecondition("the MetaGraph has no saver");
  pb::SaverDef def = meta_.saver_def();
  for (std::string* const name :
       {def.mutable_filename_tensor_name(), def.mutable_save_tensor_name(), def.mutable_restore_op_name()}) {
    *name = InScope(*name);
  }
  return Saver::FromDef(scope_, def, std::move(options));
}

}  // namespace millrace
