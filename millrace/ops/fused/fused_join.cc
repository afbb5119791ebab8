#include "millrace/ops/fused/fused_join.h"

namespace millrace {
namespace {

using Step = FusedProgram::Step;
using Extent = FusedProgram::Extent;
using Before = FunctionShape::Before;
using After = FunctionShape::After;

bool OfFloats(const Step& step) {
  return step.node->output_type(0) == DType::kFloat && step.node->input_type(0) == DType::kFloat;
}
bool IsSum(const Step& step) { return step.node->is_type("Add") || step.node->is_type("AddV2"); }
bool IsProduct(const Step& step) { return step.node->is_type("Mul"); }
bool IsDifference(const Step& step) { return step.node->is_type("Sub"); }
bool IsQuotient(const Step& step) { return step.node->is_type("RealDiv") || step.node->is_type("Div"); }

// The chain operation of a sum, product or difference whose operand `at` is the accumulator.
ChainOp ChainOpOf(const Step& step, int at) {
  return IsSum(step) ? ChainOp::kAdd : IsProduct(step) ? ChainOp::kMul : at == 0 ? ChainOp::kSub : ChainOp::kReverseSub;
}

class Joiner {
 public:
  Joiner(int num_inputs, const std::vector<Extent>& extents, const std::vector<Step>& steps)
      : num_inputs_(num_inputs), extents_(extents), uses_(extents.size(), 0), made_by_(extents.size(), -1) {
    for (const Step& step : steps) {
      for (int i = 0; i < step.num_operands; ++i) ++uses_[step.operands[i]];
    }
    for (const Step& step : steps) Add(step);
  }

  std::vector<Step> Take() {
    std::vector<Step> left;
    for (size_t i = 0; i < steps_.size(); ++i) {
      if (!gone_[i]) left.push_back(std::move(steps_[i]));
    }
    return left;
  }

 private:
  void Add(Step step) {
    if (OfFloats(step)) {
      if (step.kind == Step::Kind::kReduce) {
        JoinSquare(&step);
      } else if (extents_[step.value] == Extent::kAll) {
        if (step.kind == Step::Kind::kUnary) {
          MakeFunction(&step);
        } else if (step.kind == Step::Kind::kBinary && (IsSum(step) || IsProduct(step) || IsDifference(step))) {
          JoinFunction(&step, 0) || JoinFunction(&step, 1) || JoinChain(&step, 0) || JoinChain(&step, 1);
        }
      }
    }
    made_by_[step.value] = static_cast<int>(steps_.size());
    steps_.push_back(std::move(step));
    gone_.push_back(false);
  }

  // The step that produces a value with a single use, or null.
  const Step* Maker(int value) const {
    if (value < num_inputs_ || uses_[value] != 1 || made_by_[value] < 0) return nullptr;
    return &steps_[made_by_[value]];
  }
  bool Stands(int value) const { return extents_[value] == Extent::kOne; }
  bool Moves(int value) const { return extents_[value] == Extent::kAll; }

  // Replaces a step and the one whose result it used by `joined`.
  void Replace(const Step& gone, Step joined, Step* step) {
    gone_[made_by_[gone.value]] = true;
    joined.node = step->node;
    joined.value = step->value;
    joined.kernel = step->kernel;
    *step = std::move(joined);
  }

  void JoinSquare(Step* step) {
    if (!step->node->is_type("Sum") && !step->node->is_type("Mean")) return;
    const Step* const square = Maker(step->operands[0]);
    if (square == nullptr || !square->node->is_type("Square") || square->kind != Step::Kind::kUnary) return;
    gone_[made_by_[square->value]] = true;
    step->operands[0] = square->operands[0];
    step->reduce.row = &SumOfSquares;
  }

  // Makes a function step that others can be fused into, including the scaling of its operand.
  void MakeFunction(Step* step) {
    if (FindFunctionLoop(step->node->type(), step->shape) == nullptr) return;
    const Step* const before = Maker(step->operands[0]);
    if (before != nullptr && before->kind == Step::Kind::kBinary && (IsProduct(*before) || IsQuotient(*before))) {
      const int moving = IsProduct(*before) && Stands(before->operands[0]) ? 1 : 0;
      if (Moves(before->operands[moving]) && Stands(before->operands[1 - moving])) {
        gone_[made_by_[before->value]] = true;
        step->operands[0] = before->operands[moving];
        step->operands[1] = before->operands[1 - moving];
        step->num_operands = 2;
        step->shape.before = IsProduct(*before) ? Before::kMul : Before::kDiv;
      }
    }
    step->function_type = step->node->type();
    step->function = FindFunctionLoop(step->function_type, step->shape);
    step->kind = Step::Kind::kFunction;
  }

  // step = function + standing, or (function + standing) * (moving * standing).
  bool JoinFunction(Step* step, int at) {
    const Step* const before = Maker(step->operands[at]);
    const int other = step->operands[1 - at];
    if (before == nullptr || before->kind != Step::Kind::kFunction) return false;
    Step joined = *before;
    if (IsSum(*step) && joined.shape.after == After::kNothing && Stands(other)) {
      if (joined.shape.before == Before::kNothing) joined.operands[1] = other;  // ignored
      joined.operands[2] = other;
      joined.num_operands = 3;
      joined.shape.after = After::kAdd;
    } else if (IsProduct(*step) && joined.shape.after == After::kAdd && Moves(other)) {
      joined.operands[3] = other;
      joined.num_operands = 4;
      joined.shape.after = After::kAddMul;
      const Step* const factor = Maker(other);
      if (factor != nullptr && factor->kind == Step::Kind::kBinary && IsProduct(*factor)) {
        const int moving = Stands(factor->operands[0]) ? 1 : 0;
        if (Moves(factor->operands[moving]) && Stands(factor->operands[1 - moving])) {
          gone_[made_by_[other]] = true;
          joined.operands[3] = factor->operands[moving];
          joined.operands[4] = factor->operands[1 - moving];
          joined.num_operands = 5;
          joined.shape.after = After::kAddMulScaled;
        }
      }
    } else {
      return false;
    }
    joined.function = FindFunctionLoop(joined.function_type, joined.shape);
    Replace(*before, std::move(joined), step);
    return true;
  }

  // Appends a sum, product or difference to a chain.
  bool JoinChain(Step* step, int at) {
    const Step* const before = Maker(step->operands[at]);
    if (before == nullptr || !Moves(before->value)) return false;
    Step chain = *before;
    if (chain.kind == Step::Kind::kBinary) {
      // The first operation becomes a chain of one, starting from the operand that is certainly an array.
      if (!(IsSum(chain) || IsProduct(chain) || IsDifference(chain)) || !OfFloats(chain)) return false;
      const int first = Moves(chain.operands[0]) ? 0 : 1;
      if (!Moves(chain.operands[first])) return false;
      chain.chain[0] = ChainOpOf(chain, first);
      if (first == 1) std::swap(chain.operands[0], chain.operands[1]);
      chain.kind = Step::Kind::kChain;
    } else if (chain.kind != Step::Kind::kChain) {
      return false;
    }
    const int count = chain.num_operands;  // operations including the new one
    if (count > kMostChainOps) return false;
    chain.chain[count - 1] = ChainOpOf(*step, at);
    const bool stands[kMostChainOps] = {};
    if (FindChainLoop(count, chain.chain, stands) == nullptr) return false;
    chain.operands[chain.num_operands++] = step->operands[1 - at];
    Replace(*before, std::move(chain), step);
    return true;
  }

  const int num_inputs_;
  const std::vector<Extent>& extents_;
  std::vector<int> uses_, made_by_;
  std::vector<Step> steps_;
  std::vector<bool> gone_;
};

}  // namespace

std::vector<Step> JoinSteps(int num_inputs, const std::vector<Extent>& extents, const std::vector<Step>& steps) {
  return Joiner(num_inputs, extents, steps).Take();
}

}  // namespace millrace
