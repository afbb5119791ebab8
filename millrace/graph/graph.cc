#include "millrace/graph/graph.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "millrace/graph/node_types.h"

namespace millrace {
namespace {

bool IsNameStart(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.';
}

bool IsNamePart(char c) { return IsNameStart(c) || c == '_' || c == '-' || c == '/' || c == '\\' || c == '>'; }

std::string NodePrefix(absl::string_view name, absl::string_view op) {
  return absl::StrCat("{{node ", name, "}} (op ", op, "): ");
}

// A value input also accepts a reference, but a ref input does not accept a value.
bool TypesAgree(DType wanted, DType given) { return IsRef(wanted) ? wanted == given : wanted == BaseType(given); }

}  // namespace

bool IsValidNodeName(absl::string_view name) {
  if (name.empty() || !IsNameStart(name[0])) return false;
  return std::all_of(name.begin() + 1, name.end(), IsNamePart);
}

Status Graph::CheckNewName(const Node& node) const {
  const std::string& name = node.name();
  // Names of nodes that the runtime adds (sends, receives) may start with an underscore, as their ops do, and so may
  // the control loops that TensorFlow's masters add.
  const bool internal = !name.empty() && name[0] == '_' && (node.type()[0] == '_' || absl::StartsWith(name, "_cloop"));
  if (!IsValidNodeName(internal ? absl::string_view(name).substr(1) : absl::string_view(name))) {
    return InvalidArgument("Node name '", name,
                           "' is not valid: it takes letters, digits and _.-/ after "
                           "a first letter, digit or dot");
  }
  if (by_name_.contains(name)) return InvalidArgument("Node name '", name, "' is in the graph already");
  return absl::OkStatus();
}

Status Graph::CheckInputs(const Node& node) const {
  if (node.inputs_.size() != node.input_types_.size()) {
    return InvalidArgument("takes ", node.input_types_.size(), " inputs but has ", node.inputs_.size());
  }
  for (int i = 0; i < node.num_inputs(); ++i) {
    const Endpoint& e = node.inputs_[i];
    if (!TypesAgree(node.input_types_[i], e.dtype())) {
      return InvalidArgument("input ", i, " '", InputName(node, i), "' takes ", DTypeName(node.input_types_[i]),
                             " but ", e.name(), " is ", DTypeName(e.dtype()));
    }
  }
  return absl::OkStatus();
}

Node* Graph::Adopt(std::unique_ptr<Node> node) {
  Node* raw = node.get();
  raw->id_ = next_id_++;
  by_name_.emplace(raw->name_, raw);
  nodes_.push_back(raw);
  owned_.push_back(std::move(node));
  return raw;
}

StatusOr<std::unique_ptr<Node>> Graph::MakeNode(NodeSpec spec) const {
  StatusOr<const OpSchema*> op = OpRegistry::Global().Find(spec.op);
  if (!op.ok()) return WithPrefix(absl::StrCat("{{node ", spec.name, "}}: "), op.status());
  auto node = std::make_unique<Node>();
  node->op_ = *op;
  node->name_ = std::move(spec.name);
  node->inputs_ = std::move(spec.inputs);
  node->control_inputs_ = std::move(spec.control_inputs);
  node->requested_device_ = std::move(spec.device);
  node->attrs_ = std::make_shared<AttrMap>();
  node->attrs_->swap(spec.attrs);

  auto fill_in = [&]() -> Status {
    absl::InlinedVector<DType, 4> given;
    for (const Endpoint& e : node->inputs_) {
      if (e.node == nullptr) return InvalidArgument("input ", given.size(), " is missing");
      if (e.index < 0 || e.index >= e.node->num_outputs()) {
        return InvalidArgument("input ", given.size(), ": ", e.node->name(), " has no output ", e.index);
      }
      given.push_back(e.dtype());
    }
    MR_RETURN_IF_ERROR(InferAttrs(*node->op_, given, node->attrs_.get()));
    MR_RETURN_IF_ERROR(CheckAttrs(*node->op_, *node->attrs_));
    MR_RETURN_IF_ERROR(
        ResolveTypes(*node->op_, *node->attrs_, node->num_inputs(), &node->input_types_, &node->output_types_));
    return CheckInputs(*node);
  };
  if (Status s = fill_in(); !s.ok()) return WithPrefix(NodePrefix(node->name_, node->type()), s);
  return node;
}

StatusOr<Node*> Graph::AddNode(NodeSpec spec) {
  MR_ASSIGN_OR_RETURN(std::unique_ptr<Node> node, MakeNode(std::move(spec)));
  MR_RETURN_IF_ERROR(CheckNewName(*node));
  return Adopt(std::move(node));
}

Status Graph::ReplaceNode(Node* node, NodeSpec spec) {
  spec.name = node->name_;
  MR_ASSIGN_OR_RETURN(std::unique_ptr<Node> other, MakeNode(std::move(spec)));
  if (other->output_types_ != node->output_types_) {
    return InvalidArgument(NodePrefix(node->name_, other->type()), "has other outputs than ", node->type());
  }
  node->op_ = other->op_;
  node->inputs_ = std::move(other->inputs_);
  node->control_inputs_ = std::move(other->control_inputs_);
  node->input_types_ = std::move(other->input_types_);
  node->requested_device_ = std::move(other->requested_device_);
  node->attrs_ = std::move(other->attrs_);
  return absl::OkStatus();
}

Node* Graph::FindNode(absl::string_view name) const {
  auto it = by_name_.find(name);
  return it == by_name_.end() ? nullptr : it->second;
}

Node* Graph::FindNodeById(int id) const {
  // nodes_ is sorted by id.
  auto it = std::lower_bound(nodes_.begin(), nodes_.end(), id,
                             [](const Node* node, int wanted) { return node->id() < wanted; });
  if (it != nodes_.end() && (*it)->id() == id) return *it;
  for (const auto& node : detached_) {
    if (node->id() == id) return node.get();
  }
  return nullptr;
}

StatusOr<Endpoint> Graph::FindEndpoint(absl::string_view name) const {
  if (absl::StartsWith(name, "^")) {
    Node* node = FindNode(name.substr(1));
    if (node == nullptr) return NotFound("there is no node '", name.substr(1), "' in the graph");
    return Endpoint{node, -1};
  }
  const size_t colon = name.rfind(':');
  const bool has_slot = colon != absl::string_view::npos;
  Node* node = FindNode(has_slot ? name.substr(0, colon) : name);
  if (node == nullptr) return NotFound("there is no tensor '", name, "' in the graph");
  if (!has_slot) return Endpoint{node, 0};
  int slot = -1;
  if (!absl::SimpleAtoi(name.substr(colon + 1), &slot) || slot < 0 || slot >= node->num_outputs()) {
    return InvalidArgument("tensor '", name, "': node ", node->name(), " (op ", node->type(), ") has ",
                           node->num_outputs(), " outputs");
  }
  return Endpoint{node, slot};
}

void Graph::SetInput(Node* node, int index, Endpoint source) {
  MR_CHECK(TypesAgree(node->input_types_[index], source.dtype()));
  node->inputs_[index] = source;
}

void Graph::AddControlInput(Node* node, Node* before) {
  auto& inputs = node->control_inputs_;
  if (std::find(inputs.begin(), inputs.end(), before) == inputs.end()) inputs.push_back(before);
}

void Graph::RemoveControlInput(Node* node, Node* before) {
  auto& inputs = node->control_inputs_;
  inputs.erase(std::remove(inputs.begin(), inputs.end(), before), inputs.end());
}

void Graph::SetAttr(Node* node, absl::string_view name, pb::AttrValue value) {
  if (node->attrs_.use_count() != 1) node->attrs_ = std::make_shared<AttrMap>(*node->attrs_);
  (*node->attrs_)[std::string(name)] = std::move(value);
}

void Graph::SetRequestedDevice(Node* node, std::string device) { node->requested_device_ = std::move(device); }

void Graph::SetAssignedDevice(Node* node, std::string device) { node->assigned_device_ = std::move(device); }

void Graph::SetOutputShape(Node* node, int index, PartialShape shape) {
  MR_CHECK(index >= 0 && index < node->num_outputs());
  if (node->output_shapes_.empty()) node->output_shapes_.resize(node->output_types_.size());
  node->output_shapes_[index] = std::move(shape);
}

void Graph::SetOrigins(Node* node, std::vector<std::string> origins) { node->origins_ = std::move(origins); }

Status Graph::AddInput(Node* node, Endpoint source) {
  const auto& args = node->op().inputs;
  if (args.empty() || args.back().number_attr.empty()) {
    return InvalidArgument(NodePrefix(node->name(), node->type()), "takes no further input");
  }
  if (node->input_types_.empty() || !TypesAgree(node->input_types_.back(), source.dtype())) {
    return InvalidArgument(NodePrefix(node->name(), node->type()), "the type of a further input differs from ",
                           source.name(), ", which is ", DTypeName(source.dtype()));
  }
  const std::string& number = args.back().number_attr;
  pb::AttrValue value;
  value.set_i(node->FindAttr(number)->i() + 1);
  SetAttr(node, number, std::move(value));
  node->inputs_.push_back(source);
  node->input_types_.push_back(node->input_types_.back());
  return absl::OkStatus();
}

void Graph::Detach(const std::function<bool(const Node*)>& detach) {
  size_t kept = 0;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    Node* node = nodes_[i];
    if (detach(node)) {
      node->detached_ = true;
      node->inputs_.clear();
      node->control_inputs_.clear();
      detached_.push_back(std::move(owned_[i]));
      continue;
    }
    nodes_[kept] = node;
    if (kept != i) owned_[kept] = std::move(owned_[i]);
    ++kept;
  }
  nodes_.resize(kept);
  owned_.resize(kept);
  for (Node* node : nodes_) {
    auto& waits = node->control_inputs_;
    waits.erase(std::remove_if(waits.begin(), waits.end(), [](Node* n) { return n->detached_; }), waits.end());
  }
}

void Graph::RemoveNodes(const std::function<bool(const Node*)>& remove) {
  size_t kept = 0;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (remove(nodes_[i])) {
      by_name_.erase(nodes_[i]->name_);
      continue;
    }
    nodes_[kept] = nodes_[i];
    // Removed nodes are moved to the end and freed together, because remove() may still access them.
    std::swap(owned_[kept], owned_[i]);
    ++kept;
  }
  nodes_.resize(kept);
  owned_.resize(kept);
}

std::string Graph::UniqueName(absl::string_view prefix) {
  if (!by_name_.contains(prefix)) return std::string(prefix);
  int& count = name_counts_[prefix];
  std::string name;
  do {
    name = absl::StrCat(prefix, "_", ++count);
  } while (by_name_.contains(name));
  return name;
}

std::unique_ptr<Graph> Graph::Clone(const std::function<bool(const Node*)>& keep) const {
  auto copy = std::make_unique<Graph>();
  copy->versions_ = versions_;
  copy->library_ = library_;
  copy->next_id_ = next_id_;
  std::vector<Node*> by_id(next_id_, nullptr);
  const auto add = [&](const Node& node, bool detached) {
    auto twin = std::make_unique<Node>(node);
    Node* raw = twin.get();
    by_id[node.id_] = raw;
    copy->by_name_.emplace(raw->name_, raw);
    if (detached) {
      raw->detached_ = true;
      raw->inputs_.clear();
      raw->control_inputs_.clear();
      copy->detached_.push_back(std::move(twin));
    } else {
      copy->nodes_.push_back(raw);
      copy->owned_.push_back(std::move(twin));
    }
    return raw;
  };
  for (const Node* node : nodes_) {
    if (!keep || keep(node)) add(*node, false);
  }
  for (Node* node : copy->nodes_) {
    for (Endpoint& e : node->inputs_) {
      Node*& twin = by_id[e.node->id_];
      if (twin == nullptr) add(*e.node, true);
      e.node = twin;
    }
    size_t kept = 0;
    for (Node* before : node->control_inputs_) {
      Node* twin = by_id[before->id_];
      if (twin != nullptr && !twin->detached_) node->control_inputs_[kept++] = twin;
    }
    node->control_inputs_.resize(kept);
  }
  return copy;
}

}  // namespace millrace
