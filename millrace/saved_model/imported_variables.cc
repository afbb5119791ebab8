#include "millrace/saved_model/imported_variables.h"

#include <map>
#include <set>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "google/protobuf/unknown_field_set.h"
#include "millrace/api/op_call.h"
#include "millrace/api/output.h"
#include "millrace/api/scope_state.h"
#include "millrace/graph/attr.h"
#include "millrace/io/bundle.h"

namespace millrace {

Endpoint ReadOf(const Scope& scope, Node* handle) {
  const bool is_ref = IsRef(handle->output_type(0));
  for (Node* node : scope.graph()->nodes()) {
    if (node->is_type(is_ref ? "Identity" : "ReadVariableOp") && node->input(0) == handle->output(0) &&
        node->control_inputs().empty())
      return node->output(0);
  }
  const Scope s = scope.WithPrefix("").WithoutControlDependencies().ColocateWith(Operation(scope, handle));
  const Output source(s, handle->output(0));
  const std::string name = handle->name() + (is_ref ? "/read" : "/Read/ReadVariableOp");
  if (is_ref) return Op(s.WithOpName(name), "Identity", {source}).endpoint();
  return Op(s.WithOpName(name), "ReadVariableOp", {source}, {{"dtype", handle->AttrOr<DType>("dtype", DType::kFloat)}})
      .endpoint();
}

namespace {

std::string NodeOf(const std::string& input) { return input.substr(0, input.find(':')); }

}  // namespace

void UseRestoredCopies(pb::MetaGraphDef* meta) {
  std::map<std::string, const pb::NodeDef*> nodes;
  for (const pb::NodeDef& node : meta->graph_def().node()) nodes[node.name()] = &node;
  const auto restore = nodes.find(meta->saver_def().restore_op_name());
  if (restore == nodes.end() || meta->object_graph_def().nodes().empty()) return;
  std::set<std::string> restored;
  for (const std::string& input : restore->second->input()) restored.insert(NodeOf(input));

  std::map<std::string, std::string> copies;  // of handles that are not restored themselves
  for (const pb::NodeDef& node : meta->graph_def().node()) {
    if (node.op() != "AssignVariableOp" || node.input_size() < 2 || !restored.contains(NodeOf(node.input(0)))) continue;
    const auto read = nodes.find(NodeOf(node.input(1)));
    if (read == nodes.end() || read->second->op() != "ReadVariableOp" || read->second->input().empty()) continue;
    const auto original = nodes.find(NodeOf(read->second->input(0)));
    if (original == nodes.end() || original->second->op() != "VarHandleOp" || restored.contains(original->first))
      continue;
    copies.emplace(original->first, NodeOf(node.input(0)));
  }
  if (copies.empty()) return;
  for (pb::NodeDef& node : *meta->mutable_graph_def()->mutable_node()) {
    for (std::string& input : *node.mutable_input()) {
      const auto copy = copies.find(NodeOf(input));
      if (copy != copies.end()) input = copy->second;
    }
  }
}

namespace {

// The function that a call node of the graph calls; null if it is another node or the function is missing.
const pb::FunctionDef* CalledBy(const pb::NodeDef& node, const pb::GraphDef& graph) {
  const auto f = node.attr().find("f");
  if (f == node.attr().end()) return nullptr;
  for (const pb::FunctionDef& function : graph.library().function()) {
    if (function.signature().name() == f->second.func().name()) return &function;
  }
  return nullptr;
}

// Follows the value that a node of a function gets back to the RestoreV2 that reads it.
class RestoreFunction {
 public:
  explicit RestoreFunction(const pb::FunctionDef& function) {
    for (const pb::NodeDef& node : function.node_def()) nodes_[node.name()] = &node;
  }

  // True if every op is one of those that KeysOfHandles follows, and each assignment is among its results.
  bool OnlyAssigns() const {
    size_t assignments = 0;
    for (const auto& [name, node] : nodes_) {
      const std::string& op = node->op();
      if (op == "AssignVariableOp") {
        ++assignments;
      } else if (op != "Const" && op != "RestoreV2" && op != "Identity" && op != "NoOp") {
        return false;
      }
    }
    return assignments == KeysOfHandles().size();
  }

  // From the name of an argument, which is a variable's handle, to the key of its value.
  std::map<std::string, std::string> KeysOfHandles() const {
    std::map<std::string, std::string> keys;
    for (const auto& [name, node] : nodes_) {
      if (node->op() != "AssignVariableOp" || node->input_size() < 2) continue;
      const std::string key = KeyOf(node->input(1));
      if (!key.empty()) keys[node->input(0)] = key;
    }
    return keys;
  }

 private:
  // "node:output:index". Empty if it is not read from a checkpoint.
  std::string KeyOf(std::string tensor) const {
    for (size_t steps = 0; steps <= nodes_.size(); ++steps) {
      const std::vector<std::string> parts = absl::StrSplit(tensor, ':');
      const auto found = nodes_.find(parts[0]);
      if (found == nodes_.end() || found->second->input().empty()) return "";
      const pb::NodeDef& node = *found->second;
      if (node.op() == "RestoreV2") {
        int64_t index = 0;
        if (parts.size() != 3 || !absl::SimpleAtoi(parts[2], &index) || node.input_size() < 2) return "";
        return NameAt(node.input(1), index);
      }
      if (node.op() != "Identity") return "";
      tensor = node.input(0);
    }
    return "";
  }

  std::string NameAt(const std::string& tensor, int64_t index) const {
    const auto found = nodes_.find(tensor.substr(0, tensor.find(':')));
    if (found == nodes_.end() || !found->second->attr().contains("value")) return "";
    const StatusOr<Tensor> names = AttrAs<Tensor>(found->second->attr().at("value"));
    if (!names.ok() || names->dtype() != DType::kString || index < 0 || index >= names->num_elements()) return "";
    return names->data<std::string>()[index];
  }

  std::map<std::string, const pb::NodeDef*> nodes_;
};

using google::protobuf::UnknownField;
using google::protobuf::UnknownFieldSet;

// Calls `visit` for each field of that number that is a message or a string.
template <typename Visit>
void ForEachField(const std::string& bytes, int number, Visit visit) {
  UnknownFieldSet fields;
  if (!fields.ParseFromString(bytes)) return;
  for (int i = 0; i < fields.field_count(); ++i) {
    const UnknownField& field = fields.field(i);
    if (field.number() == number && field.type() == UnknownField::TYPE_LENGTH_DELIMITED)
      visit(field.length_delimited());
  }
}

// The keys of trainable variables. A checkpoint of TensorFlow 2 has a TrackableObjectGraph (nodes: 1, of these
// attributes: 2, of these checkpoint_key: 3), whose nodes are in the order of the model's objects.
std::set<std::string> TrainableKeys(const pb::SavedObjectGraph& objects, const std::string& tracked) {
  std::set<std::string> keys;
  int at = 0;
  ForEachField(tracked, 1, [&](const std::string& node) {
    const bool trainable = at < objects.nodes_size() && objects.nodes(at).variable().trainable();
    ++at;
    if (!trainable) return;
    ForEachField(node, 2, [&](const std::string& attribute) {
      ForEachField(attribute, 3, [&](const std::string& key) { keys.insert(key); });
    });
  });
  return keys;
}

}  // namespace

std::vector<RestoredVariable> VariablesOfRestoreFunction(const pb::MetaGraphDef& meta, bool* complete) {
  std::vector<RestoredVariable> variables;
  *complete = false;
  for (const pb::NodeDef& call : meta.graph_def().node()) {
    if (call.name() != meta.saver_def().restore_op_name()) continue;
    const pb::FunctionDef* const function = CalledBy(call, meta.graph_def());
    if (function == nullptr) continue;
    const RestoreFunction body(*function);
    const std::map<std::string, std::string> keys = body.KeysOfHandles();
    const int arguments = std::min(call.input_size(), function->signature().input_arg_size());
    for (int i = 0; i < arguments; ++i) {
      const auto key = keys.find(function->signature().input_arg(i).name());
      if (key != keys.end()) variables.push_back({NodeOf(call.input(i)), key->second});
    }
    *complete = body.OnlyAssigns() && variables.size() == keys.size();
  }
  return variables;
}

StatusOr<std::vector<RestoredVariable>> RestoredVariables(const pb::MetaGraphDef& meta, const std::string& checkpoint,
                                                          FileSystem* files) {
  if (meta.object_graph_def().nodes().empty()) return std::vector<RestoredVariable>();
  bool complete = false;
  std::vector<RestoredVariable> variables = VariablesOfRestoreFunction(meta, &complete);
  if (variables.empty()) return variables;
  MR_ASSIGN_OR_RETURN(const std::unique_ptr<BundleReader> reader, BundleReader::Open(files, checkpoint));
  MR_ASSIGN_OR_RETURN(const Tensor tracked, reader->Read("_CHECKPOINTABLE_OBJECT_GRAPH"));
  if (tracked.dtype() != DType::kString || tracked.num_elements() != 1)
    return DataLoss("_CHECKPOINTABLE_OBJECT_GRAPH of ", checkpoint, " is not a string");
  const std::set<std::string> trainable = TrainableKeys(meta.object_graph_def(), tracked.scalar<std::string>());
  for (RestoredVariable& variable : variables) variable.trainable = trainable.contains(variable.key);
  return variables;
}

Status AddVariables(const Scope& scope, const std::vector<RestoredVariable>& variables, const std::string& checkpoint) {
  auto& state = api_internal::StateOf(scope);
  for (const RestoredVariable& variable : variables) {
    const std::string name =
        scope.prefix().empty() ? variable.handle : absl::StrCat(scope.prefix(), "/", variable.handle);
    Node* const handle = scope.graph()->FindNode(name);
    if (handle == nullptr || !handle->is_type("VarHandleOp")) continue;
    const DType dtype = handle->AttrOr<DType>("dtype", DType::kInvalid);
    const Scope s = scope.WithPrefix(name).WithoutControlDependencies().ColocateWith(Operation(scope, handle));
    api_internal::VariableNodes nodes;
    nodes.handle = handle;
    nodes.value = ReadOf(scope, handle);
    const Operation saved = AddOp(s.WithOpName("initial_value"), "RestoreV2",
                                  {checkpoint, std::vector<std::string>{variable.key}, std::vector<std::string>{""}},
                                  {{"dtypes", std::vector<DType>{dtype}}});
    MR_RETURN_IF_ERROR(scope.status());
    nodes.initial_value = saved.node()->output(0);
    nodes.initializer = AddOp(s.WithOpName("Assign"), "AssignVariableOp",
                              {Output(s, handle->output(0)), saved.output(0)}, {{"dtype", dtype}})
                            .node();
    nodes.trainable = variable.trainable && IsFloating(dtype);
    state.variables.push_back(nodes);
  }
  return scope.status();
}

}  // namespace millrace
