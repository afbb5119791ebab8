// Op schemas: what an op is called, what it takes, what it gives, how shapes and gradients follow.
//
// Ops register themselves at start-up, each beside its kernels:
//
//   MILLRACE_OP(MatMul)
//       .Input("a: T").Input("b: T").Output("product: T")
//       .Attr("transpose_a: bool = false").Attr("transpose_b: bool = false")
//       .Attr("T: {bfloat16, half, float, double, int32, int64}")
//       .Shape(MatMulShape)
//       .Gradient(MatMulGradient);
//
// The small language is TensorFlow's:
//   args:  "x: T", "x: float", "x: Ref(T)", "xs: N * T", "xs: Tlist"
//   attrs: "T: type", "T: {float, int32}", "T: numbertype", "N: int >= 1 = 2", "s: string = 'x'",
//          "mode: {'A', 'B'} = 'A'", "dims: list(int) >= 1", "shape: shape = { unknown_rank: true }",
//          "f: func", "T: list(type) >= 0", "value: tensor"
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "millrace/base/status.h"
#include "millrace/proto/graph.pb.h"
#include "millrace/tensor/dtype.h"

namespace millrace {

namespace pb = ::tensorflow;

class ShapeContext;
class GradientContext;

// Computes output shapes, or says why the inputs do not fit. Must not fail on unknown shapes.
using ShapeFn = Status (*)(ShapeContext&);
// Builds the gradient of a node from those of its outputs.
using GradientFn = Status (*)(GradientContext&);

// One input or output in a schema: a single tensor, N of one type, or a list of types.
struct OpArg {
  std::string name;
  DType type = DType::kInvalid;  // fixed type, or
  std::string type_attr;         // the attr that gives it, or
  std::string type_list_attr;    // the attr of type list(type) that gives several
  std::string number_attr;       // with a type or type_attr: the attr that says how many
  bool is_ref = false;
  bool is_list() const { return !number_attr.empty() || !type_list_attr.empty(); }
};

struct OpAttr {
  std::string name;
  std::string type;  // "int", "list(type)", ...
  bool has_default = false;
  pb::AttrValue default_value;
  bool has_minimum = false;
  int64_t minimum = 0;
  // Allowed types, or allowed strings; empty when anything goes.
  std::vector<DType> allowed_types;
  std::vector<std::string> allowed_strings;
};

// The ops that give frames and dead values their meaning, with their Ref twins.
enum class ControlKind : int8_t { kNone, kSwitch, kMerge, kEnter, kExit, kNextIteration, kLoopCond };

struct OpSchema {
  std::string name;
  std::string family;  // the folder of ops/ it was registered in
  std::vector<OpArg> inputs;
  std::vector<OpArg> outputs;
  std::vector<OpAttr> attrs;
  // Has or touches state, or is random: never merged, folded or dropped while it is needed.
  bool is_stateful = false;
  bool is_commutative = false;
  // TensorFlow's allows_uninitialized_input: Assign may be given a reference to an empty variable.
  bool allows_uninitialized_input = false;
  ControlKind control_kind = ControlKind::kNone;  // set by registration
  ShapeFn shape_fn = nullptr;
  GradientFn gradient_fn = nullptr;
  // True when the op is known to have no useful gradient (ArgMax, Shape, ...).
  bool not_differentiable = false;
  // One line for the reader of docs/ops.md and of the generated builders.
  std::string summary;

  const OpAttr* FindAttr(absl::string_view name) const;
};

// Checks one attr value against its declaration: kind, allowed values, minimum.
Status CheckAttr(const OpAttr& attr, const pb::AttrValue& value);

// All schemas of the process. Registration happens before main; look-ups are thread-safe.
class OpRegistry {
 public:
  static OpRegistry& Global();

  // NOT_FOUND names the op.
  StatusOr<const OpSchema*> Find(absl::string_view name) const;
  // Null when there is none.
  const OpSchema* FindOrNull(absl::string_view name) const;
  // Sorted by name.
  std::vector<const OpSchema*> All() const;

  // Ends the process when the schema is malformed or registered twice: a bug of ours.
  void Register(OpSchema schema);

 private:
  absl::flat_hash_map<std::string, std::unique_ptr<OpSchema>> ops_;
};

// Collects one registration; see the top of this file.
class OpSchemaBuilder {
 public:
  OpSchemaBuilder(absl::string_view name, absl::string_view file);
  OpSchemaBuilder& Input(absl::string_view spec);
  OpSchemaBuilder& Output(absl::string_view spec);
  OpSchemaBuilder& Attr(absl::string_view spec);
  OpSchemaBuilder& Stateful();
  OpSchemaBuilder& Commutative();
  OpSchemaBuilder& AllowsUninitializedInput();
  OpSchemaBuilder& Shape(ShapeFn fn);
  OpSchemaBuilder& Gradient(GradientFn fn);
  OpSchemaBuilder& NotDifferentiable();
  OpSchemaBuilder& Summary(absl::string_view text);

  const OpSchema& schema() const { return schema_; }
  // OK, or what is wrong with a spec.
  const Status& status() const { return status_; }

 private:
  OpSchema schema_;
  Status status_;
};

struct OpRegistration {
  OpRegistration(const OpSchemaBuilder& builder);  // NOLINT: what MILLRACE_OP converts with
};

#define MILLRACE_OP(name) \
  static const ::millrace::OpRegistration MR_CONCAT(mr_op_, __COUNTER__) = \
      ::millrace::OpSchemaBuilder(#name, __FILE__)

}  // namespace millrace
