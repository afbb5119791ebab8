#include "millrace/ops/math/fused_program.h"

#include <algorithm>
#include <atomic>

#include "absl/strings/str_cat.h"
#include "millrace/graph/graph_def.h"
#include "millrace/ops/kernels/stream_copy.h"

namespace millrace {
namespace {

using Extent = FusedProgram::Extent;

// Elements of a block: a few of them fit into the first-level cache together.
constexpr int64_t kBlockElements = 1024;
// Inputs of one row are repeated for a block when rows are shorter than this.
constexpr int64_t kRepeatColumns = 256;
// Longer rows are not reduced in one piece; see ReduceKernel.
constexpr int64_t kMostColumns = 65536;
// Cheap steps on elements that are worth a hand-off to another thread.
constexpr int64_t kGrainCost = 1 << 18;
constexpr size_t kRegisterAlignment = 64;
// Between registers, so that the same element of all does not fall into one set of the cache.
constexpr size_t kRegisterGap = 192;

// The loops that kernels keep for themselves.
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

Extent ExtentOf(const Shape& shape, const Shape& space) {
  const int rank = space.rank();
  if (shape == space) return Extent::kAll;
  if (shape.num_elements() == 1 && shape.rank() <= rank) return Extent::kOne;
  if (shape.rank() == 0 || shape.rank() > rank) return Extent::kNone;
  if (shape.rank() == rank && shape.dim(rank - 1) == 1 &&
      shape.dims().subspan(0, rank - 1) == space.dims().subspan(0, rank - 1)) {
    return Extent::kRows;
  }
  for (int d = 0; d + 1 < shape.rank(); ++d) {
    if (shape.dim(d) != 1) return Extent::kNone;
  }
  return shape.dim(shape.rank() - 1) == space.dim(rank - 1) ? Extent::kColumns : Extent::kNone;
}

// out = condition ? a : b. An operand that stands gives its first element.
template <typename T>
void SelectElements(const bool* c, bool c_stands, const T* a, bool a_stands, const T* b, bool b_stands, T* out,
                    int64_t n) {
  const int64_t cs = !c_stands, as = !a_stands, bs = !b_stands;
  if (cs && as && bs) {
    for (int64_t i = 0; i < n; ++i) out[i] = c[i] ? a[i] : b[i];
  } else if (cs && as) {
    const T x = *b;
    for (int64_t i = 0; i < n; ++i) out[i] = c[i] ? a[i] : x;
  } else if (cs && bs) {
    const T x = *a;
    for (int64_t i = 0; i < n; ++i) out[i] = c[i] ? x : b[i];
  } else {
    for (int64_t i = 0; i < n; ++i) out[i] = c[i * cs] ? a[i * as] : b[i * bs];
  }
}

struct Pair {
  uint64_t low, high;
};

void SelectLoop(size_t size, const char* const* in, const bool* stands, char* out, int64_t n) {
  const auto run = [&](auto zero) {
    using T = decltype(zero);
    SelectElements(reinterpret_cast<const bool*>(in[0]), stands[0], reinterpret_cast<const T*>(in[1]), stands[1],
                   reinterpret_cast<const T*>(in[2]), stands[2], reinterpret_cast<T*>(out), n);
  };
  switch (size) {
    case 1: return run(uint8_t{});
    case 2: return run(uint16_t{});
    case 4: return run(uint32_t{});
    case 8: return run(uint64_t{});
    default: return run(Pair{});
  }
}

Status NamedError(const Node& node, const Device& device, const Status& status) {
  return Status(status.code(), absl::StrCat(status.message(), "\n\t [[{{node ", node.name(), "}}]] (", node.type(),
                                            " on ", device.name(), ")"));
}

}  // namespace

// One run: where the inputs lie and what every value has.
struct FusedProgram::Frame {
  int64_t rows = 0, columns = 0, block_rows = 0;
  bool stream = false;
  bool repeat = false;
  const Steps* steps = nullptr;
  absl::InlinedVector<const char*, 16> inputs;
  // Of all values.
  absl::InlinedVector<size_t, 32> sizes;
  absl::InlinedVector<Extent, 32> extents;
  absl::InlinedVector<int, 32> registers;
  size_t register_bytes = 0;
  size_t scratch_bytes = 0;
  // Inputs of one row; in the scratch memory they are repeated for all rows of a block.
  absl::InlinedVector<int, 4> columns_inputs;
};

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
  JoinSteps(StaticExtents(space_input));
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
    if (shapes[i].known_rank() && shapes[i].dims() == space.dims()) extents[i] = Extent::kAll;
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

void FusedProgram::JoinSteps(const std::vector<Extent>& extents) {
  std::vector<int> uses(num_values_, 0), made_by(num_values_, -1);
  for (const Step& step : plain_.steps) {
    for (int i = 0; i < step.num_operands; ++i) ++uses[step.operands[i]];
  }
  std::vector<Step> steps;
  std::vector<bool> gone;
  const auto maker = [&](int value) -> Step* {
    if (value < num_inputs_ || uses[value] != 1 || made_by[value] < 0) return nullptr;
    return &steps[made_by[value]];
  };
  const auto is_float = [](const Node& node) {
    return node.output_type(0) == DType::kFloat && node.input_type(0) == DType::kFloat;
  };
  for (const Step& plain : plain_.steps) {
    Step step = plain;
    const Node& node = *step.node;
    const bool sum = node.is_type("Add") || node.is_type("AddV2"), product = node.is_type("Mul"),
               difference = node.is_type("Sub");
    if (step.kind == Step::Kind::kReduce && (node.is_type("Sum") || node.is_type("Mean")) && is_float(node)) {
      const Step* const square = maker(step.operands[0]);
      if (square != nullptr && square->node->is_type("Square") && square->kind == Step::Kind::kUnary) {
        gone[made_by[step.operands[0]]] = true;
        step.operands[0] = square->operands[0];
        step.reduce.row = &SumOfSquares;
      }
    } else if (step.kind == Step::Kind::kBinary && (sum || product || difference) && is_float(node) &&
               extents[step.value] == Extent::kAll) {
      const auto join = [&](int at) {
        const int other = step.operands[1 - at];
        Step* const before = maker(step.operands[at]);
        if (before == nullptr || extents[before->value] != Extent::kAll) return false;
        const ChainOp op = sum ? ChainOp::kAdd : product ? ChainOp::kMul : at == 0 ? ChainOp::kSub : ChainOp::kReverseSub;
        Step chain = *before;
        if (chain.kind == Step::Kind::kBinary) {
          // The first operation becomes a chain of one, from the operand that is sure to move.
          const Node& first = *chain.node;
          const bool first_sum = first.is_type("Add") || first.is_type("AddV2"), first_product = first.is_type("Mul");
          if ((!first_sum && !first_product && !first.is_type("Sub")) || !is_float(first)) return false;
          const int acc = extents[chain.operands[0]] == Extent::kAll ? 0 : 1;
          if (extents[chain.operands[acc]] != Extent::kAll) return false;
          chain.chain[0] = first_sum       ? ChainOp::kAdd
                           : first_product ? ChainOp::kMul
                           : acc == 0      ? ChainOp::kSub
                                           : ChainOp::kReverseSub;
          if (acc == 1) std::swap(chain.operands[0], chain.operands[1]);
          chain.kind = Step::Kind::kChain;
        } else if (chain.kind != Step::Kind::kChain) {
          return false;
        }
        const int count = chain.num_operands;  // operations with the new one
        if (count > kMostChainOps) return false;
        chain.chain[count - 1] = op;
        const bool stands[kMostChainOps] = {};
        if (FindChainLoop(count, chain.chain, stands) == nullptr) return false;
        chain.operands[chain.num_operands++] = other;
        chain.node = step.node;
        chain.value = step.value;
        chain.kernel = step.kernel;
        gone[made_by[step.operands[at]]] = true;
        step = std::move(chain);
        return true;
      };
      if (!join(0)) join(1);
    }
    made_by[step.value] = static_cast<int>(steps.size());
    steps.push_back(std::move(step));
    gone.push_back(false);
  }
  for (size_t i = 0; i < steps.size(); ++i) {
    if (!gone[i]) joined_.steps.push_back(std::move(steps[i]));
  }
}

// A register is free again after the last use of what it holds. Only a unary step writes over its operand: others
// may read a row's value again for the next element.
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

bool FusedProgram::Describe(KernelContext& ctx, const Shape& space, const Steps& steps, Frame* frame) const {
  if (!has_loops_ || space.rank() < 1) return false;
  const int64_t elements = space.num_elements();
  if (elements == 0) return false;
  *frame = Frame();
  frame->steps = &steps;
  frame->extents.resize(num_values_, Extent::kNone);
  frame->sizes.resize(num_values_, 0);
  frame->registers.resize(num_values_, -1);
  bool by_rows = false;
  size_t widest = 1;
  for (int i = 0; i < num_inputs_; ++i) {
    const Tensor& input = ctx.input(i);
    const Extent extent = ExtentOf(input.shape(), space);
    if (extent == Extent::kNone) return false;
    if (extent == Extent::kColumns) frame->columns_inputs.push_back(i);
    by_rows |= extent == Extent::kRows || extent == Extent::kColumns;
    frame->extents[i] = extent;
    frame->inputs.push_back(static_cast<const char*>(input.raw_data()));
    frame->sizes[i] = SizeOf(input.dtype());
    widest = std::max(widest, frame->sizes[i]);
  }
  for (const Step& step : steps.steps) {
    Extent extent = Extent::kOne;
    if (step.kind == Step::Kind::kReduce) {
      if (frame->extents[step.operands[0]] != Extent::kAll) return false;
      extent = Extent::kRows;
      by_rows = true;
    } else {
      for (int i = 0; i < step.num_operands; ++i) {
        const Extent e = frame->extents[step.operands[i]];
        if (e == Extent::kAll || e == Extent::kColumns) extent = Extent::kAll;
        if (e == Extent::kRows && extent == Extent::kOne) extent = Extent::kRows;
      }
      // Values of one row, or of one element, are not made here.
      if (extent == Extent::kOne) return false;
      bool full = extent == Extent::kRows;
      for (int i = 0; i < step.num_operands; ++i) {
        const Extent e = frame->extents[step.operands[i]];
        full |= e == Extent::kAll || e == Extent::kRows;
      }
      if (!full) return false;
      if (step.kind == Step::Kind::kChain && frame->extents[step.operands[0]] != extent) return false;
    }
    widest = std::max(widest, step.size);
    frame->extents[step.value] = extent;
    frame->sizes[step.value] = step.size;
    frame->registers[step.value] = step.reg;
  }
  const int64_t columns = space.dim(space.rank() - 1);
  if (by_rows && (columns < 2 || columns > kMostColumns)) return false;
  frame->columns = by_rows ? columns : 1;
  frame->rows = elements / frame->columns;
  frame->block_rows = std::min(frame->rows, std::max<int64_t>(1, kBlockElements / frame->columns));
  frame->register_bytes =
      (frame->block_rows * frame->columns * widest + kRegisterAlignment - 1) / kRegisterAlignment * kRegisterAlignment +
      kRegisterGap;
  frame->repeat = columns < kRepeatColumns;
  if (!frame->repeat) frame->columns_inputs.clear();
  frame->scratch_bytes = frame->register_bytes * (steps.num_registers + frame->columns_inputs.size());
  return true;
}

// The step that failed, or null.
const FusedProgram::Step* FusedProgram::RunBlock(const Frame& f, char* scratch, int64_t row, int64_t rows,
                                                 char* out) const {
  const int64_t columns = f.columns, n = rows * columns;
  const Step* const last = &f.steps->steps.back();
  for (const Step& step : f.steps->steps) {
    const Extent extent = f.extents[step.value];
    char* const to = &step == last && out != nullptr ? out : scratch + step.reg * f.register_bytes;
    const char* in[1 + kMostChainOps];
    size_t row_bytes[1 + kMostChainOps];
    bool stands[1 + kMostChainOps];
    bool mixed = false;  // a block does not do: rows' values meet elements, or a row is used for each row
    for (int i = 0; i < step.num_operands; ++i) {
      const int operand = step.operands[i];
      const Extent e = f.extents[operand];
      const size_t size = f.sizes[operand];
      stands[i] = e == Extent::kOne || (e == Extent::kRows && extent == Extent::kAll);
      row_bytes[i] = e == Extent::kOne ? 0 : e == Extent::kRows ? size : size * columns;
      mixed |= e == Extent::kRows && extent == Extent::kAll;
      if (operand >= num_inputs_) {
        in[i] = scratch + f.registers[operand] * f.register_bytes;
      } else if (e != Extent::kColumns) {
        in[i] = f.inputs[operand] + row * row_bytes[i];
      } else if (!f.repeat) {
        in[i] = f.inputs[operand];
        row_bytes[i] = 0;
        mixed |= rows > 1;
      } else {
        const auto at = std::find(f.columns_inputs.begin(), f.columns_inputs.end(), operand);
        in[i] = scratch + (f.steps->num_registers + (at - f.columns_inputs.begin())) * f.register_bytes;
      }
    }
    const ChainLoop chain = step.kind == Step::Kind::kChain
                                ? FindChainLoop(step.num_operands - 1, step.chain, stands + 1)
                                : nullptr;
    const auto run = [&](char* result, int64_t count) {
      switch (step.kind) {
        case Step::Kind::kUnary: step.unary(in[0], result, count); return true;
        case Step::Kind::kBinary:
          return step.binary(stands[0]   ? Operands::kLeftStands
                             : stands[1] ? Operands::kRightStands
                                         : Operands::kBothMove,
                             in[0], in[1], result, count);
        case Step::Kind::kSelect: SelectLoop(step.size, in, stands, result, count); return true;
        case Step::Kind::kChain:
          chain(reinterpret_cast<const float*>(in[0]), reinterpret_cast<const float* const*>(in + 1),
                reinterpret_cast<float*>(result), count);
          return true;
        default: return true;
      }
    };
    if (step.kind == Step::Kind::kReduce) {
      alignas(16) char acc[16];
      for (int64_t r = 0; r < rows; ++r) {
        char* const result = to + r * step.size;
        step.reduce.row(in[0] + r * row_bytes[0], columns, step.reduce.finish == nullptr ? result : acc);
        if (step.reduce.finish != nullptr) step.reduce.finish(acc, 1, columns, result);
      }
    } else if (!mixed) {
      if (!run(to, extent == Extent::kAll ? n : rows)) return &step;
    } else {
      for (int64_t r = 0; r < rows; ++r) {
        if (!run(to + r * columns * step.size, columns)) return &step;
        for (int i = 0; i < step.num_operands; ++i) in[i] += row_bytes[i];
      }
    }
  }
  return nullptr;
}

Status FusedProgram::RunBlocks(KernelContext& ctx, const Shape& space, Frame& frame) const {
  const Step& last = frame.steps->steps.back();
  const bool all = frame.extents[last.value] == Extent::kAll;
  Shape shape = space;
  if (!all) {
    if (last.kind == Step::Kind::kReduce && !last.keep_dims) {
      shape.RemoveDim(shape.rank() - 1);
    } else {
      shape.set_dim(shape.rank() - 1, 1);
    }
  }
  int whole[3] = {64, 64, 64};  // inputs whose memory will do
  for (int i = 0, k = 0; all && i < num_inputs_ && k < 3; ++i) {
    if (frame.extents[i] == Extent::kAll && frame.sizes[i] == last.size) whole[k++] = i;
  }
  MR_ASSIGN_OR_RETURN(Tensor* const output,
                      ctx.ForwardOrAllocateOutput({whole[0], whole[1], whole[2]}, 0, shape));
  char* const out = static_cast<char*>(output->raw_data());
  const bool fresh = std::find(frame.inputs.begin(), frame.inputs.end(), out) == frame.inputs.end();
  frame.stream = all && fresh && output->TotalBytes() >= kStreamBytes;
  const size_t out_row = last.size * (all ? frame.columns : 1);
  const int64_t grain_rows = std::max<int64_t>(
      1, kGrainCost / std::max<int64_t>(1, weight_ * frame.block_rows * frame.columns)) * frame.block_rows;
  std::atomic<const Step*> failed{nullptr};
  std::atomic<bool> no_memory{false};
  ctx.ParallelFor(frame.rows, grain_rows, [&](int64_t begin, int64_t end) {
    StatusOr<Tensor> memory =
        ctx.AllocateTemp(DType::kUInt8, Shape({static_cast<int64_t>(frame.scratch_bytes + kRegisterAlignment)}));
    if (!memory.ok()) {
      no_memory.store(true, std::memory_order_relaxed);
      return;
    }
    char* const scratch = static_cast<char*>(memory->raw_data());
    for (size_t c = 0; c < frame.columns_inputs.size(); ++c) {
      const int input = frame.columns_inputs[c];
      const size_t bytes = frame.columns * frame.sizes[input];
      char* const to = scratch + (frame.steps->num_registers + c) * frame.register_bytes;
      for (int64_t r = 0; r < frame.block_rows; ++r) std::memcpy(to + r * bytes, frame.inputs[input], bytes);
    }
    for (int64_t row = begin; row < end; row += frame.block_rows) {
      const int64_t rows = std::min(frame.block_rows, end - row);
      char* const to = out + row * out_row;
      const Step* bad = RunBlock(frame, scratch, row, rows, frame.stream ? nullptr : to);
      if (bad != nullptr) failed.store(bad, std::memory_order_relaxed);
      if (frame.stream) StreamCopy(scratch + last.reg * frame.register_bytes, to, rows * out_row);
    }
    if (frame.stream) StreamFence();
  });
  if (no_memory.load()) return absl::ResourceExhaustedError("no memory for a block of a fused node");
  if (const Step* bad = failed.load(); bad != nullptr) {
    return NamedError(*bad->node, *ctx.device(), InvalidArgument(bad->error));
  }
  return absl::OkStatus();
}

// As the executor would, for shapes that do not meet in rows.
Status FusedProgram::RunOneByOne(KernelContext& ctx) const {
  std::vector<Tensor> values(num_values_);
  std::vector<int> uses(num_values_, 0);
  for (const Step& step : plain_.steps) {
    for (int i = 0; i < step.num_operands; ++i) ++uses[step.operands[i]];
  }
  for (const Step& step : plain_.steps) {
    const Tensor* inputs[4];
    for (int i = 0; i < step.num_operands; ++i) {
      const int operand = step.operands[i];
      inputs[i] = operand < num_inputs_ ? &ctx.input(operand) : &values[operand];
    }
    int count = step.num_operands;
    if (step.kind == Step::Kind::kReduce) inputs[count++] = &step.axes;
    KernelContext one;
    KernelContextAccess access(one);
    access.Set(step.node, ctx.device(), ctx.allocator(), &ctx.step());
    access.SetInputs(inputs, count, 0);
    access.SetOutputs(&values[step.value], 1);
    access.SetFrame(ctx.frame_id(), ctx.iteration(), false);
    if (Status status = step.kernel->Compute(one); !status.ok()) {
      return NamedError(*step.node, *ctx.device(), status);
    }
    for (int i = 0; i < step.num_operands; ++i) {
      const int value = step.operands[i];
      if (value >= num_inputs_ && --uses[value] == 0) values[value] = Tensor();
    }
  }
  ctx.SetOutput(0, std::move(values[plain_.steps.back().value]));
  return absl::OkStatus();
}

Status FusedProgram::Run(KernelContext& ctx, int space_input) const {
  const Shape space = ctx.input(space_input).shape();
  Frame frame;
  if (Describe(ctx, space, joined_, &frame) || Describe(ctx, space, plain_, &frame)) {
    return RunBlocks(ctx, space, frame);
  }
  return RunOneByOne(ctx);
}

}  // namespace millrace
