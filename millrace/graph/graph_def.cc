#include "millrace/graph/graph_def.h"

#include "absl/strings/numbers.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
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

}  // namespace

// One import. Nodes are made first and linked when all are there, so that a loop's Merge may stand
// before the NextIteration it takes.
class GraphDefImporter {
 public:
  GraphDefImporter(pb::GraphDef* def, Graph* graph)
      : def_(*def), graph_(*graph), first_(graph->nodes_.size()), first_id_(graph->next_id_) {}

  Status Run() {
    Status status = ImportAll();
    if (!status.ok()) {
      TakeBack();
      return status;
    }
    for (pb::FunctionDef* f : new_functions_) graph_.library_.add_function()->Swap(f);
    for (const pb::GradientDef& g : def_.library().gradient()) *graph_.library_.add_gradient() = g;
    for (const auto& g : def_.library().registered_gradients()) {
      *graph_.library_.add_registered_gradients() = g;
    }
    if (def_.has_versions()) graph_.versions_.Swap(def_.mutable_versions());
    return status;
  }

 private:
  Status ImportAll() {
    MR_RETURN_IF_ERROR(CheckLibrary());
    const size_t total = first_ + static_cast<size_t>(def_.node_size());
    graph_.nodes_.reserve(total);
    graph_.owned_.reserve(total);
    graph_.by_name_.reserve(total);
    for (pb::NodeDef& def : *def_.mutable_node()) MR_RETURN_IF_ERROR(WithNode(def, Make(&def)));
    waited_for_.resize(graph_.next_id_, -1);
    for (int i = 0; i < def_.node_size(); ++i) {
      Node* node = graph_.nodes_[first_ + i];
      if (Status s = Link(def_.node(i), node); !s.ok()) {
        return WithPrefix(absl::StrCat("{{node ", node->name(), "}} (op ", node->type(), "): "), s);
      }
    }
    // Older nodes refer to no new ones, so only new ones can close a cycle.
    if (!forward_reference_) return absl::OkStatus();
    return TopologicalOrder(graph_).status();
  }

  // Names the node when the message does not.
  static Status WithNode(const pb::NodeDef& def, const Status& status) {
    if (status.ok()) return status;
    return WithPrefix(absl::StrCat("{{node ", def.name(), "}} (op ", def.op(), "): "), status);
  }

  Status CheckLibrary() {
    absl::flat_hash_map<absl::string_view, const pb::FunctionDef*> known;
    if (def_.library().function_size() == 0) return absl::OkStatus();
    for (const auto& f : graph_.library_.function()) known.emplace(f.signature().name(), &f);
    for (pb::FunctionDef& f : *def_.mutable_library()->mutable_function()) {
      auto [it, is_new] = known.emplace(f.signature().name(), &f);
      if (is_new) {
        new_functions_.push_back(&f);
      } else if (StableBytes(*it->second) != StableBytes(f)) {
        return InvalidArgument("function '", f.signature().name(),
                               "' is defined twice, differently");
      }
    }
    return absl::OkStatus();
  }

  // A node without inputs; def's name stays, since messages need it.
  Status Make(pb::NodeDef* def) {
    MR_ASSIGN_OR_RETURN(const OpSchema* op, OpRegistry::Global().Find(def->op()));
    auto node = std::make_unique<Node>();
    node->op_ = op;
    node->name_ = def->name();
    MR_RETURN_IF_ERROR(graph_.CheckNewName(*node));
    node->requested_device_ = std::move(*def->mutable_device());
    MR_RETURN_IF_ERROR(CheckAttrs(*op, def->attr()));
    MR_ASSIGN_OR_RETURN(const int data_inputs, CountDataInputs(*def));
    MR_RETURN_IF_ERROR(
        ResolveTypes(*op, def->attr(), data_inputs, &node->input_types_, &node->output_types_));
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
    for (const std::string& text : def.input()) {
      InputRef name;
      MR_RETURN_IF_ERROR(ParseInputRef(text, &name));
      Node* source = graph_.FindNode(name.node);
      if (source == nullptr)
        return InvalidArgument("input '", text, "' names no node of the graph");
      if (source->id() >= node->id()) forward_reference_ = true;
      if (name.slot < 0) {
        if (waited_for_[source->id()] == node->id()) continue;  // named twice
        waited_for_[source->id()] = node->id();
        node->control_inputs_.push_back(source);
        continue;
      }
      if (name.slot >= source->num_outputs()) {
        return InvalidArgument("input '", text, "': ", source->name(), " (op ", source->type(),
                               ") has ", source->num_outputs(), " outputs");
      }
      node->inputs_.push_back(Endpoint{source, name.slot});
    }
    return graph_.CheckInputs(*node);
  }

  void TakeBack() {
    for (size_t i = first_; i < graph_.nodes_.size(); ++i)
      graph_.by_name_.erase(graph_.nodes_[i]->name());
    graph_.nodes_.resize(first_);
    graph_.owned_.resize(first_);
    graph_.next_id_ = first_id_;
  }

  pb::GraphDef& def_;
  Graph& graph_;
  const size_t first_;
  const int first_id_;
  bool forward_reference_ = false;
  std::vector<int> waited_for_;  // by id: the last node that waits for it
  std::vector<pb::FunctionDef*> new_functions_;
};

Status ImportGraphDef(pb::GraphDef def, Graph* graph) {
  return GraphDefImporter(&def, graph).Run();
}

pb::NodeDef ExportNodeDef(const Node& node) {
  pb::NodeDef def;
  def.set_name(node.name());
  def.set_op(node.type());
  def.set_device(node.requested_device());
  for (const Endpoint& e : node.inputs()) def.add_input(e.index == 0 ? e.node->name() : e.name());
  for (const Node* before : node.control_inputs()) def.add_input(absl::StrCat("^", before->name()));
  *def.mutable_attr() = node.attrs();
  for (const OpAttr& attr : node.op().attrs) {
    // insert leaves an attribute that is there alone.
    if (attr.has_default) def.mutable_attr()->insert({attr.name, attr.default_value});
  }
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
