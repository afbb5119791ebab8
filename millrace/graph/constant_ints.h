// Static evaluation of the integer tensors that shapes are computed from.
#pragma once

#include <limits>
#include <optional>
#include <vector>

#include "millrace/graph/shape_inference.h"

namespace millrace {

inline constexpr int64_t kUnknownInt = std::numeric_limits<int64_t>::min();

// The elements of an integer tensor in row-major order, kUnknownInt for unknown ones; nullopt if not even their number
// is known.
using KnownInts = std::optional<std::vector<int64_t>>;

class IntEvaluator;

// The argument of an op's IntsFn (op_schema.h): an output of a node, and the elements of its inputs.
class IntsContext {
 public:
  const Node& node() const { return *output_.node; }
  // The output to evaluate.
  int output_index() const { return output_.index; }
  const PartialShape& input_shape(int i) const { return node().input(i).shape(); }
  bool has_int_input(int i) const { return IsInteger(BaseType(node().input(i).dtype())); }

  // The elements of input i, as far as they are statically known.
  KnownInts Input(int i);
  // The only element of input i; nullopt if there are several or it is unknown.
  std::optional<int64_t> InputScalar(int i);
  // The concatenated elements of inputs [begin, end).
  KnownInts JoinInputs(int begin, int end);
  // The value of the node, which is a constant; nullopt if it is not of an integer type.
  KnownInts Constant();

 private:
  friend class IntEvaluator;
  IntsContext(Endpoint output, int depth, IntEvaluator* evaluator)
      : output_(output), depth_(depth), evaluator_(evaluator) {}

  const Endpoint output_;
  const int depth_;
  IntEvaluator* const evaluator_;
};

// A common IntsFn: output 0 has the same elements as input 0, possibly in another shape.
KnownInts UnchangedInts(IntsContext& c);

// For IntsFn of binary ops: applies `combine` to the elements of the two inputs, broadcasting scalars. `combine` is
// only called with known numbers, and may return kUnknownInt.
KnownInts CombineInts(IntsContext& c, int64_t (*combine)(int64_t a, int64_t b));

// Evaluates an integer tensor statically, through the ops that have an OpSchema::ints_fn. Returns false if not even the
// number of elements is known.
bool EvaluateInts(Endpoint e, const ShapeContext::ConstantLookup& constants, std::vector<int64_t>* values);

}  // namespace millrace
