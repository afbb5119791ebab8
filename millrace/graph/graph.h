// The dataflow graph: nodes, the tensors between them, and control edges.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "millrace/base/status.h"
#include "millrace/graph/attr.h"
#include "millrace/graph/op_schema.h"
#include "millrace/proto/graph.pb.h"
#include "millrace/tensor/shape.h"

namespace millrace {

class Graph;
class GraphDefImporter;
class Node;

using AttrMap = google::protobuf::Map<std::string, pb::AttrValue>;

// One output of a node: the source of an edge, and what a client feeds and fetches.
struct Endpoint {
  Node* node = nullptr;
  int index = 0;

  explicit operator bool() const { return node != nullptr; }
  std::string name() const;  // "layer1/MatMul:0"
  DType dtype() const;
  const PartialShape& shape() const;  // as far as inferred
  friend bool operator==(const Endpoint& a, const Endpoint& b) { return a.node == b.node && a.index == b.index; }
  friend bool operator!=(const Endpoint& a, const Endpoint& b) { return !(a == b); }
  template <typename H>
  friend H AbslHashValue(H h, const Endpoint& e) {
    return H::combine(std::move(h), e.node, e.index);
  }
};

// A node: an op with its inputs and attributes. Owned by its Graph and modified only through it.
class Node {
 public:
  int id() const { return id_; }  // dense, stable while the node lives
  const std::string& name() const { return name_; }
  const OpSchema& op() const { return *op_; }
  const std::string& type() const { return op_->name; }
  // The device that the user requested; may be partial or empty.
  const std::string& requested_device() const { return requested_device_; }
  // The device that placement chose; empty before placement.
  const std::string& assigned_device() const { return assigned_device_; }

  int num_inputs() const { return static_cast<int>(inputs_.size()); }
  int num_outputs() const { return static_cast<int>(output_types_.size()); }
  const Endpoint& input(int i) const { return inputs_[i]; }
  absl::Span<const Endpoint> inputs() const { return inputs_; }
  absl::Span<Node* const> control_inputs() const { return control_inputs_; }
  DType input_type(int i) const { return input_types_[i]; }    // as the schema declares it
  DType output_type(int i) const { return output_types_[i]; }  // may be a ref type
  absl::Span<const DType> input_types() const { return input_types_; }
  absl::Span<const DType> output_types() const { return output_types_; }
  Endpoint output(int i) { return Endpoint{this, i}; }

  // The inferred shape; of unknown rank before inference.
  const PartialShape& output_shape(int i) const;

  // Attributes as given or inferred, including undeclared ones that start with '_'. Defaults are not included; FindAttr
  // looks them up in the schema.
  const AttrMap& attrs() const { return *attrs_; }
  // The attribute or its default; null if there is neither.
  const pb::AttrValue* FindAttr(absl::string_view name) const;
  // NOT_FOUND if missing, INVALID_ARGUMENT if of another kind; the message names the node.
  template <typename T>
  StatusOr<T> Attr(absl::string_view name) const {
    const pb::AttrValue* value = FindAttr(name);
    if (value == nullptr) return MissingAttr(name);
    StatusOr<T> result = AttrAs<T>(*value);
    if (!result.ok()) return WrongAttr(name, result.status());
    return result;
  }
  // The attr, or `otherwise` if it is missing or of another kind.
  template <typename T>
  T AttrOr(absl::string_view name, T otherwise) const {
    const pb::AttrValue* value = FindAttr(name);
    if (value == nullptr) return otherwise;
    StatusOr<T> result = AttrAs<T>(*value);
    return result.ok() ? *std::move(result) : otherwise;
  }

  // The names of the user's nodes that this node was made from: its own name unless a pass created it.
  absl::Span<const std::string> origins() const;

  // True if the node is no longer in Graph::nodes(); see Graph::Detach.
  bool is_detached() const { return detached_; }

  bool is_type(absl::string_view type) const { return op_->name == type; }
  // Each includes its Ref variant (RefSwitch and so on).
  bool IsSwitch() const { return op_->control_kind == ControlKind::kSwitch; }
  bool IsMerge() const { return op_->control_kind == ControlKind::kMerge; }
  bool IsEnter() const { return op_->control_kind == ControlKind::kEnter; }
  bool IsExit() const { return op_->control_kind == ControlKind::kExit; }
  bool IsNextIteration() const { return op_->control_kind == ControlKind::kNextIteration; }
  // Any of the above, and LoopCond.
  bool IsSend() const { return op_->Has(OpTrait::kSend); }
  bool IsReceive() const { return op_->Has(OpTrait::kReceive); }
  bool IsControlFlow() const { return op_->control_kind != ControlKind::kNone; }

 private:
  friend class Graph;
  friend class GraphDefImporter;
  Status MissingAttr(absl::string_view name) const;
  Status WrongAttr(absl::string_view name, const Status& why) const;

  int id_ = -1;
  bool detached_ = false;
  std::string name_;
  const OpSchema* op_ = nullptr;
  std::string requested_device_;
  std::string assigned_device_;
  std::vector<Endpoint> inputs_;
  std::vector<Node*> control_inputs_;
  absl::InlinedVector<DType, 4> input_types_;
  absl::InlinedVector<DType, 2> output_types_;
  std::vector<PartialShape> output_shapes_;  // empty until one is set
  std::shared_ptr<AttrMap> attrs_;           // shared with clones; copy-on-write
  std::vector<std::string> origins_;
};

// The description of a new node.
struct NodeSpec {
  std::string name;
  std::string op;
  std::vector<Endpoint> inputs = {};
  std::vector<Node*> control_inputs = {};
  std::string device = {};
  AttrMap attrs = {};
};

// Owns its nodes. Not thread-safe; sessions lock their own.
class Graph {
 public:
  Graph();
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  // Adds a node after validating its name, op, attrs (absent type attrs are inferred from the inputs) and the number
  // and types of its inputs. Errors name the node and the op. Shapes are not checked; see InferShapes.
  StatusOr<Node*> AddNode(NodeSpec spec);

  // Null if there is none.
  Node* FindNode(absl::string_view name) const;
  // Resolves "node", "node:1" or, for a target, "^node". NOT_FOUND, naming it, if there is no such node;
  // INVALID_ARGUMENT if the node has no such output.
  StatusOr<Endpoint> FindEndpoint(absl::string_view name) const;

  // All nodes in the order in which they were added, without gaps.
  absl::Span<Node* const> nodes() const { return nodes_; }
  int num_nodes() const { return static_cast<int>(nodes_.size()); }
  // Upper bound of Node::id().
  int max_id() const { return next_id_; }

  // Mutators for passes.
  void SetInput(Node* node, int index, Endpoint source);  // types must agree
  void AddControlInput(Node* node, Node* before);         // no-op if present
  void RemoveControlInput(Node* node, Node* before);
  void SetAttr(Node* node, absl::string_view name, pb::AttrValue value);
  void SetRequestedDevice(Node* node, std::string device);
  void SetAssignedDevice(Node* node, std::string device);
  void SetOutputShape(Node* node, int index, PartialShape shape);
  void SetOrigins(Node* node, std::vector<std::string> origins);
  // Appends an input: for the back edge of a loop, whose source is added after its Merge.
  Status AddInput(Node* node, Endpoint source);
  // Removes the nodes for which remove(node) is true; no kept node may use a removed one.
  void RemoveNodes(const std::function<bool(const Node*)>& remove);

  // An unused node name: "prefix", "prefix_1" and so on.
  std::string UniqueName(absl::string_view prefix);

  // Removes nodes from nodes() but keeps them alive as sources of fed edges: their outputs come from the client and
  // they never run. Their inputs, and control edges from them, are removed.
  void Detach(const std::function<bool(const Node*)>& detach);

  // Replaces a node's op, keeping its name and id; spec.name is ignored. The output types must not change, and the
  // inferred shapes are kept. On error the node is unchanged.
  Status ReplaceNode(Node* node, NodeSpec spec);

  // A copy with the same ids, including detached nodes.
  std::unique_ptr<Graph> Clone() const { return Clone(nullptr); }
  // A copy of the nodes for which keep(node) is true (all if null), with the same ids. An omitted node that is an input
  // of a kept one is detached in the copy.
  std::unique_ptr<Graph> Clone(const std::function<bool(const Node*)>& keep) const;

  // The node with that id, including detached ones; null if removed. A clone has the ids of its original.
  Node* FindNodeById(int id) const;

  const pb::VersionDef& versions() const { return versions_; }
  void set_versions(const pb::VersionDef& v) { versions_ = v; }
  // The function library. Clones share it copy-on-write.
  const pb::FunctionDefLibrary& library() const;
  pb::FunctionDefLibrary* mutable_library();
  void ShareLibrary(const Graph& other) { library_ = other.library_; }
  // Null if there is none of that name.
  const pb::FunctionDef* FindFunction(absl::string_view name) const;
  // The name of the function that the library declares as the gradient of `name`; empty if none.
  std::string FindGradientFunction(absl::string_view name) const;

 private:
  friend class GraphDefImporter;
  Status CheckNewName(const Node& node) const;
  Status CheckInputs(const Node& node) const;
  // Makes a node that is not in the graph yet; everything but its name has been checked.
  StatusOr<std::unique_ptr<Node>> MakeNode(NodeSpec spec) const;
  Node* Adopt(std::unique_ptr<Node> node);

  pb::VersionDef versions_;
  struct Library;
  std::shared_ptr<Library> library_;  // never null
  int next_id_ = 0;
  std::vector<Node*> nodes_;
  std::vector<std::unique_ptr<Node>> owned_;  // owns nodes_, in the same order
  std::vector<std::unique_ptr<Node>> detached_;
  absl::flat_hash_map<absl::string_view, Node*> by_name_;
  absl::flat_hash_map<std::string, int> name_counts_;
};

// Orders the nodes such that each comes after its inputs and control inputs, ignoring back edges of loops and detached
// nodes. Ties are broken by id. INVALID_ARGUMENT, naming a node of it, for a cycle without a NextIteration.
StatusOr<std::vector<Node*>> TopologicalOrder(const Graph& graph);

// For each node id, the consumers of its outputs: one entry per data edge, with the consumer's input slot, and one per
// control edge, with slot -1.
struct Consumer {
  Node* node;
  int slot;
};
std::vector<std::vector<Consumer>> ConsumersById(const Graph& graph);

// The graph as text, one line per node: "name = Op(a, b:1, ^c)". For tests and logs.
std::string GraphToString(const Graph& graph);

// TensorFlow's rule: letters, digits and _.\-/ after a first letter, digit or dot.
bool IsValidNodeName(absl::string_view name);

}  // namespace millrace
