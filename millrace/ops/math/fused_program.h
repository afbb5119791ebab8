// Element-wise ops and reductions of rows, run block by block.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "millrace/graph/graph.h"
#include "millrace/ops/kernels/elementwise.h"
#include "millrace/ops/kernels/reduce.h"
#include "millrace/ops/math/fused_chains.h"
#include "millrace/ops/math/fused_functions.h"
#include "millrace/runtime/kernel.h"

namespace millrace {

// A graph of element-wise nodes as steps over numbered values: the inputs first, then what each step makes. It runs
// the loops of the nodes' own kernels over blocks that stay in the cache, so that every element comes out as it
// would from the nodes one by one. Constant after Init.
class FusedProgram {
 public:
  // What a value has in the space [rows, columns] of a run.
  enum class Extent : uint8_t { kNone, kAll, kRows, kColumns, kOne };
  static constexpr int kMostOperands = std::max(1 + kMostChainOps, kMostFunctionOperands);

  struct Step {
    enum class Kind : uint8_t { kNoLoop, kUnary, kBinary, kSelect, kReduce, kChain, kFunction };
    Kind kind = Kind::kNoLoop;
    int num_operands = 0;
    int operands[kMostOperands] = {};
    ChainOp chain[kMostChainOps] = {};  // of a chain: how operand i + 1 joins in
    int value = 0;                      // the number of the result
    int reg = -1;  // where the result is kept; the last step's is the output
    size_t size = 0;
    UnaryLoop unary = nullptr;
    BinaryLoop binary = nullptr;
    ReduceLoops reduce;
    FunctionLoop function = nullptr;
    FunctionShape shape;  // of a function and what is around it
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
  // Steps with the registers that they need.
  struct Steps {
    std::vector<Step> steps;
    int num_registers = 0;
  };

  Status MakeStep(Node* node, Device* device, absl::flat_hash_map<const Node*, int>& value_of);
  // What is known of the values' extents before a run.
  std::vector<Extent> StaticExtents(int space_input) const;
  // Joins steps whose results nobody else sees, in joined_.
  void JoinSteps(const std::vector<Extent>& extents);
  void AllocateRegisters(Steps* steps) const;
  // The extents of all values; false when a run of these steps by blocks cannot give what the nodes would.
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
  int64_t weight_ = 0;  // the cost of an element, in cheap steps
  bool has_loops_ = true;
  Steps plain_, joined_;
};

}  // namespace millrace
