// One run of a fused program.
#include <algorithm>
#include <atomic>

#include "absl/strings/str_cat.h"
#include "millrace/ops/fused/fused_program.h"
#include "millrace/ops/kernels/stream_copy.h"
#include "millrace/runtime/run_kernel.h"

namespace millrace {
namespace {

using Extent = FusedProgram::Extent;

// Elements per block; several blocks fit into the L1 cache together.
constexpr int64_t kBlockElements = 1024;
// Inputs of one row are replicated for a block if rows are shorter than this.
constexpr int64_t kRepeatColumns = 256;
// Longer rows are not reduced in one piece; see ReduceKernel.
constexpr int64_t kMostColumns = 65536;
// The number of cheap element steps that are worth another thread.
constexpr int64_t kGrainCost = 1 << 18;
constexpr size_t kRegisterAlignment = 64;
// The gap between registers, so that the same element of all does not map to one cache set.
constexpr size_t kRegisterGap = 192;

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

// out = condition ? a : b. Of a scalar operand only the first element is used.
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
    case 1:
      return run(uint8_t{});
    case 2:
      return run(uint16_t{});
    case 4:
      return run(uint32_t{});
    case 8:
      return run(uint64_t{});
    default:
      return run(Pair{});
  }
}

Status NamedError(const Node& node, const Device& device, const Status& status) {
  return Status(status.code(), absl::StrCat(status.message(), "\n\t [[{{node ", node.name(), "}}]] (", node.type(),
                                            " on ", device.name(), ")"));
}

}  // namespace

// The location of an operand in this run.
struct FusedProgram::Operand {
  const char* input = nullptr;  // if null, the operand is in scratch memory at `offset`
  size_t offset = 0;
  size_t input_row = 0;  // bytes from one row of the space to the next in the input
  size_t row = 0;        // bytes from one row of a block to the next
  bool stands = false;
};

// A step bound to the shapes of this run.
struct FusedProgram::BoundStep {
  const Step* step = nullptr;
  bool all = false;    // one value per element, not per row
  bool mixed = false;  // processed row by row: combines row values with elements, or uses one row for all
  size_t to = 0;       // in the scratch memory
  ChainLoop chain = nullptr;
  Operand operands[kMostOperands];
};

// One run: the locations of the inputs and the extents of all values.
struct FusedProgram::Frame {
  int64_t rows = 0, columns = 0, block_rows = 0;
  bool stream = false;
  bool repeat = false;
  int num_registers = 0;
  absl::InlinedVector<BoundStep, 8> steps;
  absl::InlinedVector<const char*, 16> inputs;
  // Of all values.
  absl::InlinedVector<size_t, 32> sizes;
  absl::InlinedVector<Extent, 32> extents;
  size_t register_bytes = 0;
  size_t scratch_bytes = 0;
  // Inputs of one row; they are replicated in scratch memory for all rows of a block.
  absl::InlinedVector<int, 4> columns_inputs;
};

bool FusedProgram::FitsFunction(const Step& step, const Frame& frame) {
  constexpr Extent kWanted[] = {Extent::kAll, Extent::kOne, Extent::kOne, Extent::kAll, Extent::kOne};
  for (int i = 0; i < step.num_operands; ++i) {
    if (frame.extents[step.operands[i]] != kWanted[i]) return false;
  }
  return true;
}

bool FusedProgram::Describe(KernelContext& ctx, const Shape& space, const Steps& steps, Frame* frame) const {
  if (!has_loops_ || space.rank() < 1) return false;
  const int64_t elements = space.num_elements();
  if (elements == 0) return false;
  *frame = Frame();
  frame->num_registers = steps.num_registers;
  frame->extents.resize(num_values_, Extent::kNone);
  frame->sizes.resize(num_values_, 0);
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
      // Steps whose result is a single row or element are not supported here.
      if (extent == Extent::kOne) return false;
      bool full = extent == Extent::kRows;
      for (int i = 0; i < step.num_operands; ++i) {
        const Extent e = frame->extents[step.operands[i]];
        full |= e == Extent::kAll || e == Extent::kRows;
      }
      if (!full) return false;
      if (step.kind == Step::Kind::kChain && frame->extents[step.operands[0]] != extent) return false;
      if (step.kind == Step::Kind::kFunction && !FitsFunction(step, *frame)) return false;
    }
    widest = std::max(widest, step.size);
    frame->extents[step.value] = extent;
    frame->sizes[step.value] = step.size;
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
  Bind(steps, frame);
  return true;
}

void FusedProgram::Bind(const Steps& steps, Frame* frame) const {
  absl::InlinedVector<int, 32> registers(num_values_, -1);
  for (const Step& step : steps.steps) {
    BoundStep& bound = frame->steps.emplace_back();
    bound.step = &step;
    bound.all = frame->extents[step.value] == Extent::kAll;
    bound.to = step.reg * frame->register_bytes;
    registers[step.value] = step.reg;
    bool stands[kMostOperands] = {};
    for (int i = 0; i < step.num_operands; ++i) {
      const int value = step.operands[i];
      const Extent extent = frame->extents[value];
      const size_t size = frame->sizes[value];
      Operand& operand = bound.operands[i];
      const bool meets = extent == Extent::kRows && bound.all;
      operand.stands = stands[i] = extent == Extent::kOne || meets;
      operand.row = extent == Extent::kOne ? 0 : extent == Extent::kRows ? size : size * frame->columns;
      bound.mixed |= meets;
      if (value >= num_inputs_) {
        operand.offset = registers[value] * frame->register_bytes;
      } else if (extent != Extent::kColumns) {
        operand.input = frame->inputs[value];
        operand.input_row = operand.row;
      } else if (!frame->repeat) {
        operand.input = frame->inputs[value];
        operand.row = 0;
        bound.mixed |= frame->block_rows > 1;
      } else {
        const auto at = std::find(frame->columns_inputs.begin(), frame->columns_inputs.end(), value);
        operand.offset = (frame->num_registers + (at - frame->columns_inputs.begin())) * frame->register_bytes;
      }
    }
    if (step.kind == Step::Kind::kChain) bound.chain = FindChainLoop(step.num_operands - 1, step.chain, stands + 1);
  }
}

// Runs one step on `count` elements. Returns false if one is outside the step's domain.
bool FusedProgram::RunLoop(const BoundStep& bound, const char* const* in, char* to, int64_t count) {
  const Step& step = *bound.step;
  switch (step.kind) {
    case Step::Kind::kUnary:
      step.unary(in[0], to, count);
      return true;
    case Step::Kind::kBinary:
      return step.binary(bound.operands[0].stands   ? Operands::kLeftStands
                         : bound.operands[1].stands ? Operands::kRightStands
                                                    : Operands::kBothMove,
                         in[0], in[1], to, count);
    case Step::Kind::kSelect: {
      const bool stands[3] = {bound.operands[0].stands, bound.operands[1].stands, bound.operands[2].stands};
      SelectLoop(step.size, in, stands, to, count);
      return true;
    }
    case Step::Kind::kChain:
      bound.chain(reinterpret_cast<const float*>(in[0]), reinterpret_cast<const float* const*>(in + 1),
                  reinterpret_cast<float*>(to), count);
      return true;
    case Step::Kind::kFunction:
      step.function(reinterpret_cast<const float* const*>(in), reinterpret_cast<float*>(to), count);
      return true;
    default:
      return true;
  }
}

// Returns the step that failed, or null.
const FusedProgram::Step* FusedProgram::RunBlock(const Frame& f, char* scratch, int64_t row, int64_t rows,
                                                 char* out) const {
  const int64_t columns = f.columns;
  for (const BoundStep& bound : f.steps) {
    const Step& step = *bound.step;
    char* const to = &bound == &f.steps.back() && out != nullptr ? out : scratch + bound.to;
    const char* in[kMostOperands];
    for (int i = 0; i < step.num_operands; ++i) {
      const Operand& operand = bound.operands[i];
      in[i] = operand.input != nullptr ? operand.input + row * operand.input_row : scratch + operand.offset;
    }
    if (step.kind == Step::Kind::kReduce) {
      alignas(16) char acc[16];
      for (int64_t r = 0; r < rows; ++r) {
        char* const result = to + r * step.size;
        step.reduce.row(in[0] + r * bound.operands[0].row, columns, step.reduce.finish == nullptr ? result : acc);
        if (step.reduce.finish != nullptr) step.reduce.finish(acc, 1, columns, result);
      }
    } else if (!bound.mixed) {
      if (!RunLoop(bound, in, to, bound.all ? rows * columns : rows)) return &step;
    } else {
      for (int64_t r = 0; r < rows; ++r) {
        if (!RunLoop(bound, in, to + r * columns * step.size, columns)) return &step;
        for (int i = 0; i < step.num_operands; ++i) in[i] += bound.operands[i].row;
      }
    }
  }
  return nullptr;
}

Status FusedProgram::RunBlocks(KernelContext& ctx, const Shape& space, Frame& frame) const {
  const Step& last = *frame.steps.back().step;
  const bool all = frame.extents[last.value] == Extent::kAll;
  Shape shape = space;
  if (!all) {
    if (last.kind == Step::Kind::kReduce && !last.keep_dims) {
      shape.RemoveDim(shape.rank() - 1);
    } else {
      shape.set_dim(shape.rank() - 1, 1);
    }
  }
  int whole[3] = {64, 64, 64};  // inputs whose memory can be reused
  for (int i = 0, k = 0; all && i < num_inputs_ && k < 3; ++i) {
    if (frame.extents[i] == Extent::kAll && frame.sizes[i] == last.size) whole[k++] = i;
  }
  MR_ASSIGN_OR_RETURN(Tensor* const output, ctx.ForwardOrAllocateOutput({whole[0], whole[1], whole[2]}, 0, shape));
  char* const out = static_cast<char*>(output->raw_data());
  const bool fresh = std::find(frame.inputs.begin(), frame.inputs.end(), out) == frame.inputs.end();
  frame.stream = all && fresh && output->TotalBytes() >= kStreamBytes;
  const size_t out_row = last.size * (all ? frame.columns : 1);
  const int64_t grain_rows =
      std::max<int64_t>(1, kGrainCost / std::max<int64_t>(1, weight_ * frame.block_rows * frame.columns)) *
      frame.block_rows;
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
      char* const to = scratch + (frame.num_registers + c) * frame.register_bytes;
      for (int64_t r = 0; r < frame.block_rows; ++r) std::memcpy(to + r * bytes, frame.inputs[input], bytes);
    }
    for (int64_t row = begin; row < end; row += frame.block_rows) {
      const int64_t rows = std::min(frame.block_rows, end - row);
      char* const to = out + row * out_row;
      const Step* bad = RunBlock(frame, scratch, row, rows, frame.stream ? nullptr : to);
      if (bad != nullptr) failed.store(bad, std::memory_order_relaxed);
      if (frame.stream) StreamCopy(scratch + frame.steps.back().to, to, rows * out_row);
    }
    if (frame.stream) StreamFence();
  });
  if (no_memory.load()) return absl::ResourceExhaustedError("no memory for a block of a fused node");
  if (const Step* bad = failed.load(); bad != nullptr) {
    return NamedError(*bad->node, *ctx.device(), InvalidArgument(bad->error));
  }
  return absl::OkStatus();
}

// Runs the nodes one by one, for shapes that cannot be run in blocks.
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
    if (Status status = RunKernel(*step.kernel, *step.node, ctx, absl::MakeSpan(inputs, static_cast<size_t>(count)),
                                  absl::MakeSpan(&values[step.value], 1));
        !status.ok()) {
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
