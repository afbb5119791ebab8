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

// One output of a node: what an edge carries, what a client feeds and fetches.
struct Endpoint {
  Node* node = nullptr;
  int index = 0;

  explicit operator bool() const { return node != nullptr; }
  std::string name() const;  // "layer1/MatMul:0"
  DType dtype() const;
  const PartialShape& shape() const;  // what inference knows
  friend bool operator==(const Endpoint& a, const Endpoint& b) {
    return a.node == b.node && a.index == b.index;
  }
  friend bool operator!=(const Endpoint& a, const Endpoint& b) { return !(a == b); }
  template <typename H>
  friend H AbslHashValue(H h, const Endpoint& e) {
    return H::combine(std::move(h), e.node, e.index);
  }
};

// An op at work in a graph. Owned by its Graph; changed only through it.
class Node {
 public:
  int id() const { return id_; }  // dense, stable while the node lives
  const std::string& name() const { return name_; }
  const OpSchema& op() const { return *op_; }
  const std::string& type() const { return op_->name; }
  // What the user asked for, possibly partial or empty.
  const std::string& requested_device() const { return requested_device_; }
  // What placement chose; empty before.
  const std::string& assigned_device() const { return assigned_device_; }

  int num_inputs() const { return static_cast<int>(inputs_.size()); }
  int num_outputs() const { return static_cast<int>(output_types_.size()); }
  const Endpoint& input(int i) const { return inputs_[i]; }
  absl::Span<const Endpoint> inputs() const { return inputs_; }
  absl::Span<Node* const> control_inputs() const { return control_inputs_; }
  DType input_type(int i) const { return input_types_[i]; }    // as the schema wants it
  DType output_type(int i) const { return output_types_[i]; }  // may be a ref type
  absl::Span<const DType> input_types() const { return input_types_; }
  absl::Span<const DType> output_types() const { return output_types_; }
  Endpoint output(int i) { return Endpoint{this, i}; }

  // Output shapes as far as known; of unknown rank until inference ran.
  const PartialShape& output_shape(int i) const;

  // Attributes as given or inferred, unknown ones starting with '_' kept. One that was left to its
  // default is not among them: FindAttr looks it up in the schema.
  const AttrMap& attrs() const { return *attrs_; }
  // The attribute or its default; null when there is neither.
  const pb::AttrValue* FindAttr(absl::string_view name) const;
  // NOT_FOUND when missing, INVALID_ARGUMENT when of another kind; the message names the node.
  template <typename T>
  StatusOr<T> Attr(absl::string_view name) const {
    const pb::AttrValue* value = FindAttr(name);
    if (value == nullptr) return MissingAttr(name);
    StatusOr<T> result = AttrAs<T>(*value);
    if (!result.ok()) return WrongAttr(name, result.status());
    return result;
  }
  // The attr, or `otherwise` when it is missing or of another kind.
  template <typename T>
  T AttrOr(absl::string_view name, T otherwise) const {
    const pb::AttrValue* value = FindAttr(name);
    if (value == nullptr) return otherwise;
    StatusOr<T> result = AttrAs<T>(*value);
    return result.ok() ? *std::move(result) : otherwise;
  }

  // The names of the nodes that the user wrote and this one stands for, itself unless a pass made it.
  absl::Span<const std::string> origins() const;

  // True when the graph no longer lists it; see Graph::Detach.
  bool is_detached() const { return detached_; }

  bool is_type(absl::string_view type) const { return op_->name == type; }
  // With their Ref twins.
  bool IsSwitch() const { return op_->control_kind == ControlKind::kSwitch; }
  bool IsMerge() const { return op_->control_kind == ControlKind::kMerge; }
  bool IsEnter() const { return op_->control_kind == ControlKind::kEnter; }
  bool IsExit() const { return op_->control_kind == ControlKind::kExit; }
  bool IsNextIteration() const { return op_->control_kind == ControlKind::kNextIteration; }
  // Any of the above, and LoopCond.
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
  std::shared_ptr<AttrMap> attrs_;           // shared with clones; copied before a change
  std::vector<std::string> origins_;
};

// What a new node is made from.
struct NodeSpec {
  std::string name;
  std::string op;
  std::vector<Endpoint> inputs = {};
  std::vector<Node*> control_inputs = {};
  std::string device = {};
  AttrMap attrs = {};
};

// Owns its nodes. Not thread-safe; sessions guard theirs.
class Graph {
 public:
  Graph();
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  // Adds a node after checking everything: name, op, attrs (defaults filled in, types inferred from
  // the inputs where the attr is absent), number and types of inputs. The error names node and op.
  // Shapes are not looked at; see InferShapes.
  StatusOr<Node*> AddNode(NodeSpec spec);

  // Null when there is none.
  Node* FindNode(absl::string_view name) const;
  // "node", "node:1" or, for a target, "^node". NOT_FOUND names it; a slot that the node has not,
  // INVALID_ARGUMENT.
  StatusOr<Endpoint> FindEndpoint(absl::string_view name) const;

  // All nodes, in the order they were added, without holes.
  absl::Span<Node* const> nodes() const { return nodes_; }
  int num_nodes() const { return static_cast<int>(nodes_.size()); }
  // Upper bound of Node::id().
  int max_id() const { return next_id_; }

  // Changes of a graph under a pass.
  void SetInput(Node* node, int index, Endpoint source);  // types must agree
  void AddControlInput(Node* node, Node* before);         // no effect when present
  void RemoveControlInput(Node* node, Node* before);
  void SetAttr(Node* node, absl::string_view name, pb::AttrValue value);
  void SetRequestedDevice(Node* node, std::string device);
  void SetAssignedDevice(Node* node, std::string device);
  void SetOutputShape(Node* node, int index, PartialShape shape);
  void SetOrigins(Node* node, std::vector<std::string> origins);
  // For the back edge of a loop, which is known only after its Merge.
  Status AddInput(Node* node, Endpoint source);
  // Removes the nodes for which remove(node) is true; no kept node may use a removed one.
  void RemoveNodes(const std::function<bool(const Node*)>& remove);

  // "prefix", "prefix_1", ...: a name no node has yet.
  std::string UniqueName(absl::string_view prefix);

  // Takes a node out of nodes() and keeps it alive as the source of edges that are fed: what it gives
  // comes from outside, and it never runs. Its inputs are dropped, and nobody waits for it any more.
  void Detach(const std::function<bool(const Node*)>& detach);

  // Makes another op of a node, under its name and id; spec.name is not looked at. The outputs must be
  // of the types they were, their shapes stay as they are known. On error the node is as before.
  Status ReplaceNode(Node* node, NodeSpec spec);

  // A copy with the same ids, detached nodes included.
  std::unique_ptr<Graph> Clone() const { return Clone(nullptr); }
  // A copy of the nodes for which keep(node) is true (all when null), with the same ids. A node that is
  // left out and feeds a kept one is detached in the copy.
  std::unique_ptr<Graph> Clone(const std::function<bool(const Node*)>& keep) const;

  // The node with that id, also a detached one; null when removed. A clone's ids are its original's.
  Node* FindNodeById(int id) const;

  const pb::VersionDef& versions() const { return versions_; }
  void set_versions(const pb::VersionDef& v) { versions_ = v; }
  // The functions that nodes call. Clones share it until one of them changes it.
  const pb::FunctionDefLibrary& library() const;
  pb::FunctionDefLibrary* mutable_library();
  void ShareLibrary(const Graph& other) { library_ = other.library_; }
  // Null when there is none of that name.
  const pb::FunctionDef* FindFunction(absl::string_view name) const;
  // The name of the function that the library declares to be the gradient of `name`; empty for none.
  std::string FindGradientFunction(absl::string_view name) const;

 private:
  friend class GraphDefImporter;
  Status CheckNewName(const Node& node) const;
  Status CheckInputs(const Node& node) const;
  // A node that is in no graph yet, all but its name checked.
  StatusOr<std::unique_ptr<Node>> MakeNode(NodeSpec spec) const;
  Node* Adopt(std::unique_ptr<Node> node);

  pb::VersionDef versions_;
  struct Library;
  std::shared_ptr<Library> library_;  // never null
  int next_id_ = 0;
  std::vector<Node*> nodes_;
  std::vector<std::unique_ptr<Node>> owned_;     // of nodes_, in the same order
  std::vector<std::unique_ptr<Node>> detached_;
  absl::flat_hash_map<absl::string_view, Node*> by_name_;
  absl::flat_hash_map<std::string, int> name_counts_;
};

// Every node after its inputs and control inputs, back edges of loops and detached nodes aside. INVALID_ARGUMENT names
// a node of a cycle that goes through no NextIteration. Ties are broken by id.
StatusOr<std::vector<Node*>> TopologicalOrder(const Graph& graph);

// For each node id: the nodes that take one of its outputs (once per edge, with the slot they take
// it in) or wait for it (slot -1).
struct Consumer {
  Node* node;
  int slot;
};
std::vector<std::vector<Consumer>> ConsumersById(const Graph& graph);

// The graph as text, one line for each node in order: "name = Op(a, b:1, ^c)". For tests and logs.
std::string GraphToString(const Graph& graph);

// Letters, digits and _.\-/ after a first letter, digit or dot, as TensorFlow allows.
bool IsValidNodeName(absl::string_view name);

}  // namespace millrace
