#include "millrace/ops/fused/fused_program.h"

#include <algorithm>

#include "millrace/graph/graph_def.h"
#include "millrace/ops/fused/fused_join.h"

namespace millrace {
namespace {

using Extent = FusedProgram::Extent;

// Access to the kernels' protected loops.
struct UnaryAccess : UnaryKernel {
  static UnaryLoop Loop(const UnaryKernel& k) { return k.*&UnaryAccess::loop_; }
  static int64_t Grain(const UnaryKernel& k) { return k.*&UnaryAccess::grain_; }
};
struct BinaryAccess : BinaryKernel {
  static BinaryLoop Loop(const BinaryKernel& k) { return k.*&BinaryAccess::loop_; }
  static int64_t Grain(const BinaryKernel& k) { return k.*&BinaryAccess::grain_; }
  static const char* Error(const BinaryKernel& k) { return k.*&BinaryAccess::error_; }
};
struct ReduceAccess : ReduceKernel {
  static const ReduceLoops& Loops(const ReduceKernel& k) { return k.*&ReduceAccess::loops_; }
};

}  // namespace

Status FusedProgram::MakeStep(Node* node, Device* device, absl::flat_hash_map<const Node*, int>& value_of) {
  Step step;
  step.node = node;
  step.size = SizeOf(node->output_type(0));
  MR_ASSIGN_OR_RETURN(step.kernel, KernelRegistry::Global().Create(*node, device));
  const auto* const reduce = dynamic_cast<const ReduceKernel*>(step.kernel.get());
  step.num_operands = reduce != nullptr ? 1 : node->num_inputs();
  if (step.num_operands > 3) return Internal("node ", node->name(), " is not element-wise");
  for (int i = 0; i < step.num_operands; ++i) {
    const auto at = value_of.find(node->input(i).node);
    if (at == value_of.end()) return InvalidArgument("node ", node->name(), " takes what no step has made");
    step.operands[i] = at->second;
  }
  int64_t grain = kCheapGrain;
  if (reduce != nullptr) {
    step.kind = Step::Kind::kReduce;
    step.reduce = ReduceAccess::Loops(*reduce);
    MR_ASSIGN_OR_RETURN(step.axes, node->input(1).node->Attr<Tensor>("value"));
    step.keep_dims = node->AttrOr<bool>("keep_dims", false);
  } else if (const auto* unary = dynamic_cast<const UnaryKernel*>(step.kernel.get())) {
    step.unary = UnaryAccess::Loop(*unary);
    grain = UnaryAccess::Grain(*unary);
    if (step.unary != nullptr) step.kind = Step::Kind::kUnary;
  } else if (const auto* binary = dynamic_cast<const BinaryKernel*>(step.kernel.get())) {
    step.kind = Step::Kind::kBinary;
    step.binary = BinaryAccess::Loop(*binary);
    step.error = BinaryAccess::Error(*binary);
    grain = BinaryAccess::Grain(*binary);
  } else if (node->is_type("SelectV2")) {
    step.kind = Step::Kind::kSelect;
  }
  has_loops_ &= step.kind != Step::Kind::kNoLoop;
  weight_ += std::max<int64_t>(1, kCheapGrain / grain);
  step.value = num_values_++;
  value_of[node] = step.value;
  plain_.steps.push_back(std::move(step));
  return absl::OkStatus();
}

Status FusedProgram::Init(const std::string& body, int num_inputs, int space_input, Device* device) {
  pb::GraphDef def;
  if (!def.ParseFromString(body)) return InvalidArgument("the body of a fused node is not a graph");
  graph_ = std::make_unique<Graph>();
  MR_RETURN_IF_ERROR(ImportGraphDef(std::move(def), graph_.get()));
  num_inputs_ = num_values_ = num_inputs;
  absl::flat_hash_map<const Node*, int> value_of;
  for (Node* node : graph_->nodes()) {
    if (node->num_outputs() != 1) return InvalidArgument("node ", node->name(), " is not element-wise");
    if (!node->is_type("Placeholder")) continue;
    const int number = static_cast<int>(value_of.size());
    if (number >= num_inputs_) return InvalidArgument("the body of a fused node has too many inputs");
    value_of[node] = number;
  }
  for (Node* node : graph_->nodes()) {
    if (node->is_type("Placeholder") || node->is_type("Const")) continue;
    MR_RETURN_IF_ERROR(MakeStep(node, device, value_of));
  }
  if (plain_.steps.empty()) return InvalidArgument("the body of a fused node is empty");
  AllocateRegisters(&plain_);
  joined_.steps = JoinSteps(num_inputs_, StaticExtents(space_input), plain_.steps);
  AllocateRegisters(&joined_);
  return absl::OkStatus();
}

std::vector<Extent> FusedProgram::StaticExtents(int space_input) const {
  std::vector<Extent> extents(num_values_, Extent::kNone);
  std::vector<PartialShape> shapes;
  for (const Node* node : graph_->nodes()) {
    if (node->is_type("Placeholder")) shapes.push_back(node->AttrOr<PartialShape>("shape", PartialShape()));
  }
  const PartialShape& space = shapes[space_input];
  if (space.rank() < 1) return extents;
  for (int i = 0; i < num_inputs_; ++i) {
    if (!shapes[i].known_rank()) continue;
    if (shapes[i].dims() == space.dims()) {
      extents[i] = Extent::kAll;
    } else if (shapes[i].rank() == 0) {
      extents[i] = Extent::kOne;
    }
  }
  for (const Step& step : plain_.steps) {
    if (step.kind == Step::Kind::kReduce) {
      extents[step.value] = Extent::kRows;
      continue;
    }
    for (int i = 0; i < step.num_operands; ++i) {
      if (extents[step.operands[i]] == Extent::kAll) extents[step.value] = Extent::kAll;
    }
  }
  return extents;
}

// A register is free after the last use of its value. Only a unary step may overwrite its operand: others may read a
// row's value again for the next element.
void FusedProgram::AllocateRegisters(Steps* steps) const {
  std::vector<int> last_use(num_values_, -1);
  std::vector<const Step*> made_by(num_values_, nullptr);
  for (size_t s = 0; s < steps->steps.size(); ++s) {
    const Step& step = steps->steps[s];
    made_by[step.value] = &step;
    for (int i = 0; i < step.num_operands; ++i) last_use[step.operands[i]] = static_cast<int>(s);
  }
  std::vector<int> free;
  for (size_t s = 0; s < steps->steps.size(); ++s) {
    Step& step = steps->steps[s];
    const auto release = [&] {
      for (int i = 0; i < step.num_operands; ++i) {
        const int value = step.operands[i];
        if (value < num_inputs_ || last_use[value] != static_cast<int>(s)) continue;
        const int reg = made_by[value]->reg;
        if (std::find(free.begin(), free.end(), reg) == free.end()) free.push_back(reg);
      }
    };
    const Step* const first = made_by[step.operands[0]];
    const bool in_place = step.kind == Step::Kind::kUnary && first != nullptr && first->size == step.size;
    if (in_place) release();
    if (free.empty()) {
      step.reg = steps->num_registers++;
    } else {
      step.reg = free.back();
      free.pop_back();
    }
    if (!in_place) release();
  }
}

}  // namespace millrace
