// Op schemas: an op's name, inputs, outputs and attrs, and its shape and gradient functions.
//
// Ops register themselves during static initialization, next to their kernels:
//
//   MILLRACE_OP(MatMul)
//       .Input("a: T").Input("b: T").Output("product: T")
//       .Attr("transpose_a: bool = false").Attr("transpose_b: bool = false")
//       .Attr("T: {bfloat16, half, float, double, int32, int64}")
//       .Shape(MatMulShape)
//       .Gradient(MatMulGradient);
//
// The spec language is TensorFlow's:
//   args:  "x: T", "x: float", "x: Ref(T)", "xs: N * T", "xs: Tlist"
//   attrs: "T: type", "T: {float, int32}", "T: numbertype", "N: int >= 1 = 2", "s: string = 'x'",
//          "mode: {'A', 'B'} = 'A'", "dims: list(int) >= 1", "shape: shape = { unknown_rank: true }",
//          "f: func", "T: list(type) >= 0", "value: tensor"
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
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
class IntsContext;
class GradientContext;

// Computes output shapes, or returns an error if the inputs are incompatible. Must not fail on unknown shapes.
using ShapeFn = Status (*)(ShapeContext&);
// The elements of an integer output as far as they follow from what is known of the inputs (constant_ints.h), so that
// shapes can be computed from them.
using IntsFn = std::optional<std::vector<int64_t>> (*)(IntsContext&);
// Builds the gradient of a node from those of its outputs.
using GradientFn = Status (*)(GradientContext&);

// One input or output in a schema: a single tensor, N of one type, or a list of types.
struct OpArg {
  std::string name;
  DType type = DType::kInvalid;  // fixed type, or
  std::string type_attr;         // the attr that determines it, or
  std::string type_list_attr;    // the list(type) attr that determines several
  std::string number_attr;       // with type or type_attr: the attr that determines how many
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
  // Allowed types or strings; empty if unrestricted.
  std::vector<DType> allowed_types;
  std::vector<std::string> allowed_strings;
};

// The control-flow primitives, each with its Ref variant.
enum class ControlKind : int8_t { kNone, kSwitch, kMerge, kEnter, kExit, kNextIteration, kLoopCond };

// Ops that call functions named by their attrs, by how the inliner expands the call (passes/function_inliner.h).
enum class CallKind : int8_t { kNone, kFunction, kGradient, kIf, kCase, kWhile };

// What graph passes and the runtime need to know about an op beyond its signature. An op declares its traits where it
// is registered; a pass asks for a trait instead of listing op names. Excepted are the ops that every graph is made of
// (Const, Identity, ReadVariableOp) and those that a rewrite is about: the fusion of MatMul with BiasAdd names both.
enum class OpTrait : uint8_t {
  // Every element of the output depends only on the corresponding elements of the inputs, and fused ops can run the CPU
  // kernel over a block: UnaryOf, BinaryOf or Select (ops/kernels/elementwise.h).
  kElementwise,
  // Reduces input 0 along the axes of input 1 with a kernel that fused ops can run row by row: ReduceOf
  // (ops/kernels/reduce.h).
  kRowReduction,
  // Can be applied in place to the result of a matrix product or convolution (ops/fused/fused_activation.h).
  kActivation,
  // Depends only on the shapes of its inputs.
  kShapeOf,
  // Returns a variable, its handle or its value. Changes nothing and never waits.
  kReadsVariable,
  // Changes a variable, and never waits.
  kUpdatesVariable,
  // Is stateful only because of its random number generator: it may be pruned, and it never waits.
  kRandom,
  // An argument or result of a function body.
  kFunctionBorder,
  // Its one output is its input 0, unchanged.
  kForwards,
  // Its result can be huge however small its inputs are: an attr or the value of an input gives the size.
  kUnboundedOutput,
  // May wait for data, room or a peer; holds no thread while it does.
  kWaits,
  // The two ends of an edge between devices or tasks.
  kSend,
  kReceive,
};

struct OpSchema {
  std::string name;
  std::string family;  // the folder of ops/ that registers it
  std::vector<OpArg> inputs;
  std::vector<OpArg> outputs;
  std::vector<OpAttr> attrs;
  // Reads or writes state, or is random: never merged or folded.
  bool is_stateful = false;
  bool is_commutative = false;
  // TensorFlow's allows_uninitialized_input: Assign may be given a reference to an empty variable.
  bool allows_uninitialized_input = false;
  ControlKind control_kind = ControlKind::kNone;
  CallKind call_kind = CallKind::kNone;
  uint32_t traits = 0;  // a bit for each OpTrait
  ShapeFn shape_fn = nullptr;
  IntsFn ints_fn = nullptr;
  GradientFn gradient_fn = nullptr;
  // True if the op is known to have no gradient (ArgMax, Shape, ...).
  bool not_differentiable = false;
  // One line for docs/ops.md and the generated builders.
  std::string summary;

  bool Has(OpTrait trait) const { return (traits >> static_cast<uint8_t>(trait) & 1) != 0; }
  const OpAttr* FindAttr(absl::string_view name) const;
};

// Checks one attr value against its declaration: kind, allowed values, minimum.
Status CheckAttr(const OpAttr& attr, const pb::AttrValue& value);

// All schemas of the process. Registration happens before main; look-ups are thread-safe.
class OpRegistry {
 public:
  static OpRegistry& Global();

  // NOT_FOUND, naming the op, if it is not registered.
  StatusOr<const OpSchema*> Find(absl::string_view name) const;
  // Null if there is none.
  const OpSchema* FindOrNull(absl::string_view name) const;
  // Sorted by name.
  std::vector<const OpSchema*> All() const;

  // Aborts if the schema is malformed or registered twice.
  void Register(OpSchema schema);

 private:
  absl::flat_hash_map<std::string, std::unique_ptr<OpSchema>> ops_;
};

// Builds one registration; see the top of this file.
class OpSchemaBuilder {
 public:
  OpSchemaBuilder(absl::string_view name, absl::string_view file);
  OpSchemaBuilder& Input(absl::string_view spec);
  OpSchemaBuilder& Output(absl::string_view spec);
  OpSchemaBuilder& Attr(absl::string_view spec);
  OpSchemaBuilder& Stateful();
  OpSchemaBuilder& Commutative();
  OpSchemaBuilder& AllowsUninitializedInput();
  OpSchemaBuilder& Control(ControlKind kind);
  OpSchemaBuilder& Call(CallKind kind);
  OpSchemaBuilder& Trait(OpTrait trait);
  OpSchemaBuilder& Shape(ShapeFn fn);
  OpSchemaBuilder& Ints(IntsFn fn);
  OpSchemaBuilder& Gradient(GradientFn fn);
  OpSchemaBuilder& NotDifferentiable();
  OpSchemaBuilder& Summary(absl::string_view text);

  const OpSchema& schema() const { return schema_; }
  // OK, or the error in a spec.
  const Status& status() const { return status_; }

 private:
  OpSchema schema_;
  Status status_;
};

struct OpRegistration {
  OpRegistration(const OpSchemaBuilder& builder);  // NOLINT: the conversion that MILLRACE_OP uses
};

#define MILLRACE_OP(name) \
  static const ::millrace::OpRegistration MR_CONCAT(mr_op_, __COUNTER__) = ::millrace::OpSchemaBuilder(#name, __FILE__)

}  // namespace millrace
