#include "millrace/graph/shape_inference.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "millrace/graph/constant_ints.h"
#include "millrace/tensor/tensor_proto.h"

namespace millrace {

ShapeContext::ShapeContext(const Node& node, std::vector<PartialShape> inputs, ConstantLookup constants)
    : node_(node),
      inputs_(std::move(inputs)),
      outputs_(static_cast<size_t>(node.num_outputs())),
      constants_(std::move(constants)) {}

const Tensor* ShapeContext::constant(int i) const { return constants_ ? constants_(node_.input(i)) : nullptr; }

bool ShapeContext::ConstantInts(int i, std::vector<int64_t>* values) const {
  return EvaluateInts(node_.input(i), constants_, values) &&
         std::find(values->begin(), values->end(), kUnknownInt) == values->end();
}

StatusOr<PartialShape> ShapeContext::ShapeFromInput(int i) const {
  const PartialShape& shape = input(i);
  if (shape.known_rank() && shape.rank() > 1) {
    return InvalidArgument("input ", i, " is a shape and must be a vector, not of shape ", shape.ToString());
  }
  std::vector<int64_t> dims;
  if (!EvaluateInts(node_.input(i), constants_, &dims)) return PartialShape();
  // The scalar -1 means a shape of unknown rank.
  if (shape.rank() == 0 && dims.size() == 1 && dims[0] < 0) return PartialShape();
  if (dims.size() > static_cast<size_t>(Shape::kMaxRank)) {
    return InvalidArgument("input ", i, " gives a shape of rank ", dims.size(), ", more than ", Shape::kMaxRank);
  }
  for (int64_t& d : dims) {
    if (d == kUnknownInt) d = PartialShape::kUnknown;
    if (d < -1) return InvalidArgument("input ", i, " gives a shape with the dimension ", d);
  }
  return PartialShape(absl::MakeConstSpan(dims));
}

StatusOr<PartialShape> ShapeContext::WithRank(int i, int rank) const {
  const PartialShape& shape = input(i);
  if (!shape.known_rank()) return PartialShape::UnknownOfRank(rank);
  if (shape.rank() != rank) {
    return InvalidArgument("Shape must be rank ", rank, " but is rank ", shape.rank(), ": input ", i, " is ",
                           shape.ToString());
  }
  return shape;
}

StatusOr<PartialShape> ShapeContext::WithRankAtLeast(int i, int rank) const {
  const PartialShape& shape = input(i);
  if (shape.known_rank() && shape.rank() < rank) {
    return InvalidArgument("Shape must be at least rank ", rank, " but is rank ", shape.rank(), ": input ", i, " is ",
                           shape.ToString());
  }
  return shape;
}

PartialShape ShapeContext::HandleShape(int i) const {
  Endpoint e = node_.input(i);
  // Handles pass through few nodes; a limit keeps malformed loops finite.
  for (int steps = 0; steps < 1000 && e.node != nullptr; ++steps) {
    const DType type = e.dtype();
    if (type != DType::kResource && !IsRef(type)) break;
    if (e.node->num_inputs() == 0) return e.node->AttrOr<PartialShape>("shape", PartialShape());
    e = e.node->input(0);
  }
  return PartialShape();
}

Status UnknownShape(ShapeContext& c) {
  for (int i = 0; i < c.num_outputs(); ++i) c.set_output(i, PartialShape());
  return absl::OkStatus();
}

Status ScalarShape(ShapeContext& c) {
  for (int i = 0; i < c.num_outputs(); ++i) c.set_output(i, PartialShape::Scalar());
  return absl::OkStatus();
}

Status UnchangedShape(ShapeContext& c) {
  if (c.num_inputs() == 0) return UnknownShape(c);
  for (int i = 0; i < c.num_outputs(); ++i) c.set_output(i, c.input(0));
  return absl::OkStatus();
}

Status BroadcastShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(PartialShape shape, BroadcastShapes(c.input(0), c.input(1)));
  c.set_output(0, std::move(shape));
  return absl::OkStatus();
}

Status NoOutputs(ShapeContext& c) { return absl::OkStatus(); }

Status AttrShape(ShapeContext& c) {
  MR_ASSIGN_OR_RETURN(PartialShape shape, c.Attr<PartialShape>("shape"));
  c.set_output(0, std::move(shape));
  return absl::OkStatus();
}

StatusOr<PartialShape> BroadcastShapes(const PartialShape& a, const PartialShape& b) {
  if (!a.known_rank() || !b.known_rank()) return PartialShape();
  const int rank = std::max(a.rank(), b.rank());
  PartialShape result = PartialShape::UnknownOfRank(rank);
  for (int i = 0; i < rank; ++i) {
    const int ia = i - (rank - a.rank());
    const int ib = i - (rank - b.rank());
    const int64_t da = ia < 0 ? 1 : a.dim(ia);
    const int64_t db = ib < 0 ? 1 : b.dim(ib);
    if (da == 1) {
      result.set_dim(i, db);
    } else if (db == 1 || da == db) {
      result.set_dim(i, da);
    } else if (da < 0 || db < 0) {
      // An unknown dimension must be 1 or equal to the other, which is not 1 here.
      result.set_dim(i, std::max(da, db));
    } else {
      return InvalidArgument("Dimensions must be equal, but are ", da, " and ", db, ": shapes ", a.ToString(), " and ",
                             b.ToString(), " do not broadcast");
    }
  }
  return result;
}

StatusOr<int> CanonicalAxis(int64_t axis, int rank) {
  if (axis < -rank || axis >= rank) {
    return InvalidArgument("axis ", axis, " is out of range for a tensor of rank ", rank);
  }
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

namespace {

// The values of Const nodes, decoded on first use.
class ConstantCache {
 public:
  const Tensor* Find(Endpoint e) {
    if (e.node == nullptr || !e.node->is_type("Const")) return nullptr;
    auto [it, is_new] = tensors_.try_emplace(e.node);
    if (is_new) Decode(*e.node, &it->second);
    return it->second == nullptr ? nullptr : it->second.get();
  }

 private:
  // Shape functions need small constants only; decoding weights would be wasteful.
  static constexpr int64_t kMaxElements = 1 << 16;

  static void Decode(const Node& node, std::unique_ptr<Tensor>* tensor) {
    const pb::AttrValue* value = node.FindAttr("value");
    if (value == nullptr || !value->has_tensor()) return;
    StatusOr<Shape> shape = Shape::FromProto(value->tensor().tensor_shape());
    if (!shape.ok() || shape->num_elements() > kMaxElements) return;
    StatusOr<Tensor> decoded = TensorFromProto(value->tensor());
    if (decoded.ok() && decoded->dtype() == node.output_type(0)) {
      *tensor = std::make_unique<Tensor>(*std::move(decoded));
    }
  }

  absl::flat_hash_map<const Node*, std::unique_ptr<Tensor>> tensors_;
};

Status InferWith(Graph* graph, Node* node, const ShapeContext::ConstantLookup& constants) {
  const ShapeFn fn = node->op().shape_fn;
  if (fn == nullptr || node->num_inputs() != static_cast<int>(node->input_types().size())) {
    return absl::OkStatus();
  }
  std::vector<PartialShape> inputs;
  inputs.reserve(static_cast<size_t>(node->num_inputs()));
  for (const Endpoint& e : node->inputs()) inputs.push_back(e.shape());
  ShapeContext context(*node, std::move(inputs), constants);
  if (Status s = fn(context); !s.ok()) {
    return WithPrefix(absl::StrCat("{{node ", node->name(), "}} (op ", node->type(), "): "), s);
  }
  for (int i = 0; i < context.num_outputs(); ++i) {
    if (context.outputs()[i].known_rank()) graph->SetOutputShape(node, i, context.outputs()[i]);
  }
  return absl::OkStatus();
}

void Forget(Graph* graph, Node* node) {
  for (int i = 0; i < node->num_outputs(); ++i) {
    if (node->output_shape(i).known_rank()) graph->SetOutputShape(node, i, PartialShape());
  }
}

}  // namespace

Status InferNodeShapes(Graph* graph, Node* node) {
  ConstantCache cache;
  Forget(graph, node);
  return InferWith(graph, node, [&cache](Endpoint e) { return cache.Find(e); });
}

namespace {

// The dimensions on which two shapes agree.
PartialShape Common(const PartialShape& a, const PartialShape& b) {
  if (!a.known_rank() || !b.known_rank() || a.rank() != b.rank()) return PartialShape();
  PartialShape common = a;
  for (int i = 0; i < a.rank(); ++i) {
    if (a.dim(i) != b.dim(i)) common.set_dim(i, PartialShape::kUnknown);
  }
  return common;
}

bool IsLoopMerge(const Node& node) {
  if (!node.IsMerge()) return false;
  for (const Endpoint& e : node.inputs()) {
    if (e.node->IsNextIteration()) return true;
  }
  return false;
}

}  // namespace

// A loop variable is assumed to keep its initial shape until the loop's body contradicts that; then everything is
// inferred again with a weaker assumption. A fixed point holds for the loop by induction over iterations.
Status InferShapes(Graph* graph, bool lenient) {
  ConstantCache cache;
  const ShapeContext::ConstantLookup lookup = [&cache](Endpoint e) { return cache.Find(e); };
  MR_ASSIGN_OR_RETURN(std::vector<Node*> order, TopologicalOrder(*graph));
  absl::flat_hash_map<const Node*, PartialShape> assumed;
  constexpr int kMaxRounds = 8;
  for (int round = 0; round < kMaxRounds; ++round) {
    // Earlier results may depend on what has changed since.
    for (Node* node : order) Forget(graph, node);
    std::vector<Node*> merges;
    for (Node* node : order) {
      if (!IsLoopMerge(*node)) {
        Status status = InferWith(graph, node, lookup);
        if (!status.ok() && !lenient) return status;
        continue;
      }
      merges.push_back(node);
      auto [it, is_new] = assumed.try_emplace(node);
      bool first = true;
      for (const Endpoint& e : node->inputs()) {
        if (!is_new || e.node->IsNextIteration()) continue;
        it->second = first ? e.shape() : Common(it->second, e.shape());
        first = false;
      }
      graph->SetOutputShape(node, 0, it->second);
      if (node->num_outputs() > 1) graph->SetOutputShape(node, 1, PartialShape::Scalar());
    }
    bool holds = true;
    for (const Node* merge : merges) {
      PartialShape& shape = assumed[merge];
      for (const Endpoint& e : merge->inputs()) {
        const PartialShape common = round + 2 < kMaxRounds ? Common(shape, e.shape()) : PartialShape();
        if (common == shape || (shape == e.shape() && shape.known_rank())) continue;
        shape = common;
        holds = false;
      }
    }
    if (holds) break;
  }
  return absl::OkStatus();
}

}  // namespace millrace
