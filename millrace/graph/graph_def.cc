#include "millrace/graph/graph_def.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/numbers.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "millrace/base/exception_status.h"
#include "millrace/graph/function.h"
#include "millrace/graph/node_types.h"

namespace millrace {
namespace {

// "node" and "node:2"; slot -1 for "^node".
struct InputRef {
  absl::string_view node;
  int slot = 0;
};

Status ParseInputRef(absl::string_view text, InputRef* name) {
  if (!text.empty() && text[0] == '^') {
    *name = {text.substr(1), -1};
    return absl::OkStatus();
  }
  const size_t colon = text.rfind(':');
  if (colon == absl::string_view::npos) {
    *name = {text, 0};
    return absl::OkStatus();
  }
  name->node = text.substr(0, colon);
  if (!absl::SimpleAtoi(text.substr(colon + 1), &name->slot) || name->slot < 0) {
    return InvalidArgument("input '", text, "' names no output");
  }
  return absl::OkStatus();
}

// Number of data inputs; control inputs come after them.
StatusOr<int> CountDataInputs(const pb::NodeDef& def) {
  int data = 0;
  bool control = false;
  for (const std::string& input : def.input()) {
    if (!input.empty() && input[0] == '^') {
      control = true;
    } else if (control) {
      return InvalidArgument("input '", input, "' comes after control inputs");
    } else {
      ++data;
    }
  }
  return data;
}

template <typename Message>
std::string StableBytes(const Message& message) {
  std::string bytes;
  google::protobuf::io::StringOutputStream stream(&bytes);
  google::protobuf::io::CodedOutputStream out(&stream);
  out.SetSerializationDeterministic(true);
  message.SerializeToCodedStream(&out);
  out.Trim();
  return bytes;
}

// TensorFlow's client adds outputs to a conditional or a loop when it takes gradients, which a graph that was sent
// before does not have.
const char* InvalidOutputAdvice(const Node& source) {
  switch (source.op().call_kind) {
    case CallKind::kIf:
    case CallKind::kCase:
    case CallKind::kWhile:
      return " Try using tf.compat.v1.experimental.output_all_intermediates(True).";
    default:
      return "";
  }
}

}  // namespace

// One import. All nodes are created before any is linked, so that a loop's Merge may precede its NextIteration.
class GraphDefImporter {
 public:
  GraphDefImporter(pb::GraphDef* def, Graph* graph)
      : def_(*def), graph_(*graph), first_(graph->nodes_.size()), first_id_(graph->next_id_) {}

  Status Run() {
    Status status = CatchExceptions([&] { return ImportAll(); });
    if (!status.ok()) {
      TakeBack();
      return status;
    }
    if (new_functions_.empty() && def_.library().gradient_size() == 0) return TakeVersions();
    pb::FunctionDefLibrary* library = graph_.mutable_library();
    for (pb::FunctionDef* f : new_functions_) library->add_function()->Swap(f);
    for (const pb::GradientDef& g : def_.library().gradient()) {
      if (graph_.FindGradientFunction(g.function_name()).empty()) *graph_.mutable_library()->add_gradient() = g;
    }
    for (const auto& g : def_.library().registered_gradients()) {
      *graph_.mutable_library()->add_registered_gradients() = g;
    }
    return TakeVersions();
  }

 private:
  Status TakeVersions() {
    if (def_.has_versions()) graph_.versions_.Swap(def_.mutable_versions());
    return absl::OkStatus();
  }

  Status ImportAll() {
    MR_RETURN_IF_ERROR(CheckLibrary());
    const size_t total = first_ + static_cast<size_t>(def_.node_size());
    if (total > graph_.nodes_.capacity()) {  // keep repeated small imports amortized
      graph_.nodes_.reserve(std::max(total, 2 * graph_.nodes_.capacity()));
      graph_.owned_.reserve(graph_.nodes_.capacity());
      graph_.by_name_.reserve(total);
    }
    for (pb::NodeDef& def : *def_.mutable_node()) MR_RETURN_IF_ERROR(WithNode(def, Make(&def)));
    for (int i = 0; i < def_.node_size(); ++i) {
      Node* node = graph_.nodes_[first_ + i];
      if (Status s = Link(def_.node(i), node); !s.ok()) {
        return WithPrefix(absl::StrCat("{{node ", node->name(), "}} (op ", node->type(), "): "), s);
      }
    }
    // Existing nodes do not refer to new ones, so only forward references among new ones can close a cycle.
    if (!forward_reference_) return absl::OkStatus();
    return TopologicalOrder(graph_).status();
  }

  // Adds the node's name unless the message has it.
  static Status WithNode(const pb::NodeDef& def, const Status& status) {
    if (status.ok()) return status;
    return WithPrefix(absl::StrCat("{{node ", def.name(), "}} (op ", def.op(), "): "), status);
  }

  Status CheckLibrary() {
    if (def_.library().function_size() == 0) return absl::OkStatus();
    for (pb::FunctionDef& f : *def_.mutable_library()->mutable_function()) {
      const pb::FunctionDef* known = FindFunction(f.signature().name());
      if (known == nullptr) {
        MR_RETURN_IF_ERROR(CheckFunction(f));
        functions_.emplace(f.signature().name(), &f);
        new_functions_.push_back(&f);
      } else if (StableBytes(*known) != StableBytes(f)) {
        return InvalidArgument("function '", f.signature().name(), "' has two different definitions");
      }
    }
    return absl::OkStatus();
  }

  const pb::FunctionDef* FindFunction(absl::string_view name) const {
    const auto it = functions_.find(name);
    return it != functions_.end() ? it->second : graph_.FindFunction(name);
  }

  // Creates a node without inputs. Keeps def's name for messages.
  Status Make(pb::NodeDef* def) {
    const OpSchema* op = OpRegistry::Global().FindOrNull(def->op());
    if (op == nullptr) {
      const pb::FunctionDef* function = FindFunction(def->op());
      if (function != nullptr) MR_RETURN_IF_ERROR(CallByName(*function, def));
      MR_ASSIGN_OR_RETURN(op, OpRegistry::Global().Find(def->op()));
    } else if (op->call_kind != CallKind::kNone) {
      ForgetCallByName(def);
    }
    auto node = std::make_unique<Node>();
    node->op_ = op;
    node->name_ = def->name();
    MR_RETURN_IF_ERROR(graph_.CheckNewName(*node));
    node->requested_device_ = std::move(*def->mutable_device());
    MR_RETURN_IF_ERROR(CheckAttrs(*op, def->attr()));
    MR_ASSIGN_OR_RETURN(const int data_inputs, CountDataInputs(*def));
    MR_RETURN_IF_ERROR(ResolveTypes(*op, def->attr(), data_inputs, &node->input_types_, &node->output_types_));
    if (static_cast<int>(node->input_types_.size()) != data_inputs) {
      return InvalidArgument("takes ", node->input_types_.size(), " inputs but has ", data_inputs);
    }
    node->attrs_ = std::make_shared<AttrMap>();
    node->attrs_->swap(*def->mutable_attr());
    graph_.Adopt(std::move(node));
    return absl::OkStatus();
  }

  Status Link(const pb::NodeDef& def, Node* node) {
    const size_t data_inputs = node->input_types_.size();
    node->inputs_.reserve(data_inputs);
    absl::flat_hash_set<const Node*> seen;
    for (const std::string& text : def.input()) {
      InputRef name;
      MR_RETURN_IF_ERROR(ParseInputRef(text, &name));
      Node* source = graph_.FindNode(name.node);
      if (source == nullptr) return InvalidArgument("input '", text, "' names no node of the graph");
      if (source->id() >= node->id()) forward_reference_ = true;
      if (name.slot < 0) {
        if (seen.insert(source).second) node->control_inputs_.push_back(source);  // duplicates are dropped
        continue;
      }
      if (name.slot >= source->num_outputs()) {
        return InvalidArgument("input '", text, "': Connecting to invalid output ", name.slot, " of source node ",
                               source->name(), " which has ", source->num_outputs(), " outputs.",
                               InvalidOutputAdvice(*source));
      }
      node->inputs_.push_back(Endpoint{source, name.slot});
    }
    return graph_.CheckInputs(*node);
  }

  void TakeBack() {
    for (size_t i = first_; i < graph_.nodes_.size(); ++i) graph_.by_name_.erase(graph_.nodes_[i]->name());
    graph_.nodes_.resize(first_);
    graph_.owned_.resize(first_);
    graph_.next_id_ = first_id_;
  }

  pb::GraphDef& def_;
  Graph& graph_;
  const size_t first_;
  const int first_id_;
  bool forward_reference_ = false;
  std::vector<pb::FunctionDef*> new_functions_;
  absl::flat_hash_map<absl::string_view, const pb::FunctionDef*> functions_;  // of this import
};

Status ImportGraphDef(pb::GraphDef def, Graph* graph) { return GraphDefImporter(&def, graph).Run(); }

pb::NodeDef ExportNodeDef(const Node& node) {
  pb::NodeDef def;
  def.set_name(node.name());
  def.set_op(node.type());
  def.set_device(node.requested_device());
  for (const Endpoint& e : node.inputs()) def.add_input(e.index == 0 ? e.node->name() : e.name());
  for (const Node* before : node.control_inputs()) def.add_input(absl::StrCat("^", before->name()));
  *def.mutable_attr() = node.attrs();
  for (const OpAttr& attr : node.op().attrs) {
    // insert does not overwrite an existing attribute.
    if (attr.has_default) def.mutable_attr()->insert({attr.name, attr.default_value});
  }
  if (IsCalledByName(node)) NameFunctionAsOp(&def);
  return def;
}

pb::GraphDef ExportGraphDef(const Graph& graph) {
  pb::GraphDef def;
  for (const Node* node : graph.nodes()) *def.add_node() = ExportNodeDef(*node);
  if (graph.versions().ByteSizeLong() > 0) *def.mutable_versions() = graph.versions();
  if (graph.library().ByteSizeLong() > 0) *def.mutable_library() = graph.library();
  return def;
}

}  // namespace millrace
