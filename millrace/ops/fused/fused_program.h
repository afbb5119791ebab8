// Block-wise evaluation of element-wise ops and row reductions.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "millrace/graph/graph.h"
#include "millrace/ops/fused/fused_chains.h"
#include "millrace/ops/fused/fused_functions.h"
#include "millrace/ops/kernels/elementwise.h"
#include "millrace/ops/kernels/reduce.h"
#include "millrace/runtime/kernel.h"

namespace millrace {

// A graph of element-wise nodes as a sequence of steps over numbered values: the inputs first, then the result of each
// step. It runs the loops of the nodes' own kernels over blocks that stay in the cache, so results are identical to
// those of the separate nodes. Immutable after Init.
class FusedProgram {
 public:
  // The extent of a value in the iteration space [rows, columns] of a run.
  enum class Extent : uint8_t { kNone, kAll, kRows, kColumns, kOne };
  static constexpr int kMostOperands = std::max(1 + kMostChainOps, kMostFunctionOperands);

  struct Step {
    enum class Kind : uint8_t { kNoLoop, kUnary, kBinary, kSelect, kReduce, kChain, kFunction };
    Kind kind = Kind::kNoLoop;
    int num_operands = 0;
    int operands[kMostOperands] = {};
    ChainOp chain[kMostChainOps] = {};  // of a chain: the operation on operand i + 1
    int value = 0;                      // the value number of the result
    int reg = -1;                       // the register of the result; the last step writes the output
    size_t size = 0;
    UnaryLoop unary = nullptr;
    BinaryLoop binary = nullptr;
    ReduceLoops reduce;
    FunctionLoop function = nullptr;
    FunctionShape shape;  // of a function with its surrounding operations
    std::string function_type;
    const char* error = "";  // of a binary loop
    const Node* node = nullptr;
    std::shared_ptr<Kernel> kernel;
    Tensor axes;  // of a reduction
    bool keep_dims = false;
  };

  // From a serialized GraphDef whose first `num_inputs` nodes are placeholders and whose last node is the result.
  // Input `space_input` has the shape of the space.
  Status Init(const std::string& body, int num_inputs, int space_input, Device* device);

  Status Run(KernelContext& ctx, int space_input) const;

 private:
  struct Operand;
  struct BoundStep;
  struct Frame;
  // Steps and the registers that they need.
  struct Steps {
    std::vector<Step> steps;
    int num_registers = 0;
  };

  Status MakeStep(Node* node, Device* device, absl::flat_hash_map<const Node*, int>& value_of);
  // The values' extents as far as they are known statically.
  std::vector<Extent> StaticExtents(int space_input) const;
  void AllocateRegisters(Steps* steps) const;
  // Computes the extents of all values; returns false if the steps cannot be run in blocks for these shapes.
  bool Describe(KernelContext& ctx, const Shape& space, const Steps& steps, Frame* frame) const;
  static bool FitsFunction(const Step& step, const Frame& frame);
  void Bind(const Steps& steps, Frame* frame) const;
  static bool RunLoop(const BoundStep& bound, const char* const* in, char* to, int64_t count);
  Status RunBlocks(KernelContext& ctx, const Shape& space, Frame& frame) const;
  const Step* RunBlock(const Frame& frame, char* scratch, int64_t row, int64_t rows, char* out) const;
  Status RunOneByOne(KernelContext& ctx) const;

  std::unique_ptr<Graph> graph_;
  int num_inputs_ = 0;
  int num_values_ = 0;
  int64_t weight_ = 0;  // the cost per element, in units of a cheap step
  bool has_loops_ = true;
  Steps plain_;
  Steps joined_;  // the same, with steps fused (fused_join.h)
};

}  // namespace millrace
