// SpaceToBatch, BatchToSpace and their N-dimensional forms: move spatial blocks to the batch dimension and back.
#include <algorithm>

#include "millrace/graph/gradient.h"
#include "millrace/graph/host_memory.h"
#include "millrace/graph/op_schema.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/array/int_list.h"
#include "millrace/ops/array/partial_dims.h"
#include "millrace/ops/kernels/strided_copy.h"
#include "millrace/runtime/kernel_registry.h"

namespace millrace {
namespace {

// Blocks and borders (paddings or crops) of the spatial dimensions 1..M.
struct Blocks {
  IntList block;
  IntList before;
  IntList after;
  int64_t product = 1;
};

Status CheckBlocks(Blocks* blocks) {
  for (size_t i = 0; i < blocks->block.size(); ++i) {
    if (blocks->block[i] < 1) {
      return InvalidArgument("All values in block_shape must be positive, got value ", blocks->block[i], " at index ",
                             i, ".");
    }
    if (blocks->before[i] < 0 || blocks->after[i] < 0) {
      return InvalidArgument("paddings and crops must be non-negative, got ", blocks->before[i], " and ",
                             blocks->after[i], " at index ", i);
    }
    if (__builtin_mul_overflow(blocks->product, blocks->block[i], &blocks->product)) {
      return InvalidArgument("Product of block sizes overflows at index ", i);
    }
  }
  return absl::OkStatus();
}

// `block` is null for the two-dimensional ops, whose blocks are square.
StatusOr<Blocks> ReadBlocks(const Tensor* block, int64_t block_size, const Tensor& borders) {
  Blocks blocks;
  if (block != nullptr) {
    MR_ASSIGN_OR_RETURN(blocks.block, ReadIntVector(*block, "block_shape"));
  } else {
    blocks.block.assign(2, block_size);
  }
  const int64_t m = static_cast<int64_t>(blocks.block.size());
  if (borders.rank() != 2 || borders.dim(0) != m || borders.dim(1) != 2) {
    return InvalidArgument("paddings and crops should have shape [", m, ",2] instead of ", borders.shape().ToString());
  }
  MR_ASSIGN_OR_RETURN(const IntList list, ReadInts(borders, "paddings"));
  for (int64_t i = 0; i < m; ++i) {
    blocks.before.push_back(list[2 * i]);
    blocks.after.push_back(list[2 * i + 1]);
  }
  MR_RETURN_IF_ERROR(CheckBlocks(&blocks));
  return blocks;
}

// Shapes with -1 for unknown dimensions, both ways. `rank` > number of blocks.
StatusOr<PartialShape> BatchShape(const PartialShape& space, const Blocks& b) {
  PartialShape out = space;
  if (space.dim(0) >= 0) {
    int64_t batch;
    if (__builtin_mul_overflow(space.dim(0), b.product, &batch)) {
      return InvalidArgument("batch of ", space.dim(0), " times ", b.product, " is too large");
    }
    out.set_dim(0, batch);
  }
  for (size_t i = 0; i < b.block.size(); ++i) {
    const int d = static_cast<int>(i) + 1;
    if (space.dim(d) < 0) continue;
    int64_t padded;
    if (__builtin_add_overflow(space.dim(d), b.before[i], &padded) ||
        __builtin_add_overflow(padded, b.after[i], &padded)) {
      return InvalidArgument("paddings of dimension ", d, " are too large");
    }
    if (padded % b.block[i] != 0) {
      return InvalidArgument("padded_shape[", i, "]=", padded, " is not divisible by block_shape[", i,
                             "]=", b.block[i]);
    }
    out.set_dim(d, padded / b.block[i]);
  }
  return out;
}

StatusOr<PartialShape> SpaceShape(const PartialShape& batch, const Blocks& b) {
  PartialShape out = batch;
  if (batch.dim(0) >= 0) {
    if (batch.dim(0) % b.product != 0) {
      return InvalidArgument("Input batch dimension (", batch.dim(0), ") is not divisible by product of block sizes (",
                             b.product, ")");
    }
    out.set_dim(0, batch.dim(0) / b.product);
  }
  for (size_t i = 0; i < b.block.size(); ++i) {
    const int d = static_cast<int>(i) + 1;
    if (batch.dim(d) < 0) continue;
    int64_t size;
    if (__builtin_mul_overflow(batch.dim(d), b.block[i], &size) || b.before[i] > size ||
        b.after[i] > size - b.before[i]) {
      return InvalidArgument("cropped_shape[", i, "] must be non-negative: crops ", b.before[i], " and ", b.after[i],
                             " of ", batch.dim(d), " * ", b.block[i]);
    }
    out.set_dim(d, size - b.before[i] - b.after[i]);
  }
  return out;
}

// Copies between space and batch, one box per position in a block.
Status MoveBlocks(KernelContext& ctx, const Blocks& b, const Tensor& from, const Shape& space, const Shape& batch,
                  bool to_batch, Tensor* out) {
  // There are at most as many positions as elements, unless one side is empty.
  if (space.num_elements() == 0 || batch.num_elements() == 0) return absl::OkStatus();
  const auto space_strides = RowMajorStrides(space.dims());
  const auto batch_strides = RowMajorStrides(batch.dims());
  const int m = static_cast<int>(b.block.size());
  for (int64_t place = 0; place < b.product; ++place) {
    CopyBox box;
    const auto add = [&](int64_t size, int64_t in_space, int64_t in_batch) {
      to_batch ? box.Add(size, in_space, in_batch) : box.Add(size, in_batch, in_space);
    };
    add(space.dim(0), space_strides[0], batch_strides[0]);
    int64_t space_offset = 0;
    int64_t batch_offset = place * space.dim(0) * batch_strides[0];
    int64_t rest = place;
    for (int i = m - 1; i >= 0; --i) {
      const int d = i + 1;
      // Index s in the batch's dimension corresponds to s * block + shift in space.
      const int64_t shift = rest % b.block[i] - b.before[i];
      rest /= b.block[i];
      const int64_t begin = shift >= 0 ? 0 : (-shift + b.block[i] - 1) / b.block[i];
      const int64_t end =
          shift >= space.dim(d) ? 0 : std::min(batch.dim(d), (space.dim(d) - shift - 1) / b.block[i] + 1);
      add(std::max<int64_t>(0, end - begin), space_strides[d] * b.block[i], batch_strides[d]);
      space_offset += (begin * b.block[i] + shift) * space_strides[d];
      batch_offset += begin * batch_strides[d];
    }
    for (int d = m + 1; d < space.rank(); ++d) add(space.dim(d), space_strides[d], batch_strides[d]);
    bool empty = false;
    for (const CopyBox::Dim& dim : box.dims) empty = empty || dim.size == 0;
    if (empty) continue;
    MR_RETURN_IF_ERROR(StridedCopy(ctx, std::move(box), from, to_batch ? space_offset : batch_offset, out,
                                   to_batch ? batch_offset : space_offset));
  }
  return absl::OkStatus();
}

bool IsToBatch(const Node& node) { return node.is_type("SpaceToBatch") || node.is_type("SpaceToBatchND"); }

class SpaceBatchKernel : public Kernel {
 public:
  explicit SpaceBatchKernel(KernelInit& init) : to_batch_(IsToBatch(init.node())), nd_(init.node().num_inputs() == 3) {
    if (!nd_) init.Attr("block_size", &block_size_);
    if (!IsPlain(init.input_type(0))) FailDType(init, init.input_type(0));
  }
  Status Compute(KernelContext& ctx) override {
    const Tensor& input = ctx.input(0);
    MR_ASSIGN_OR_RETURN(const Blocks blocks,
                        ReadBlocks(nd_ ? &ctx.input(1) : nullptr, block_size_, ctx.input(nd_ ? 2 : 1)));
    const int m = static_cast<int>(blocks.block.size());
    if (input.rank() < 1 + m) {
      return InvalidArgument("input rank should be >= ", 1 + m, " instead of ", input.rank());
    }
    if (!nd_ && input.rank() != 4) {
      return InvalidArgument("Input rank should be: 4 instead of: ", input.rank());
    }
    MR_ASSIGN_OR_RETURN(const PartialShape partial,
                        to_batch_ ? BatchShape(input.shape(), blocks) : SpaceShape(input.shape(), blocks));
    MR_ASSIGN_OR_RETURN(const Shape shape, Shape::Make(partial.dims()));
    if (blocks.product == 1 && shape == input.shape()) {
      // Blocks of one element and no borders: nothing moves.
      ctx.SetOutput(0, input);
      return absl::OkStatus();
    }
    MR_ASSIGN_OR_RETURN(Tensor * out, ctx.AllocateDeviceOutput(0, shape));
    if (to_batch_) MR_RETURN_IF_ERROR(ClearTensor(ctx, out));
    return to_batch_ ? MoveBlocks(ctx, blocks, input, input.shape(), shape, true, out)
                     : MoveBlocks(ctx, blocks, input, shape, input.shape(), false, out);
  }

 private:
  const bool to_batch_;
  const bool nd_;
  int64_t block_size_ = 0;
};

Status SpaceBatchShape(ShapeContext& c) {
  const bool nd = c.num_inputs() == 3;
  const PartialShape& in = c.input(0);
  const Tensor* block = nd ? c.constant(1) : nullptr;
  const Tensor* borders = c.constant(nd ? 2 : 1);
  c.set_output(0, in.known_rank() ? PartialShape::UnknownOfRank(in.rank()) : PartialShape());
  if (!in.known_rank() || borders == nullptr || (nd && block == nullptr)) return absl::OkStatus();
  const int64_t size = c.node().AttrOr<int64_t>("block_size", 0);
  MR_ASSIGN_OR_RETURN(const Blocks blocks, ReadBlocks(block, size, *borders));
  if (in.rank() < 1 + static_cast<int>(blocks.block.size())) {
    return InvalidArgument("input rank should be >= ", 1 + blocks.block.size(), " instead of ", in.rank());
  }
  MR_ASSIGN_OR_RETURN(PartialShape out, IsToBatch(c.node()) ? BatchShape(in, blocks) : SpaceShape(in, blocks));
  c.set_output(0, out);
  return absl::OkStatus();
}

Status SpaceBatchGradient(GradientContext& c) {
  const bool to_batch = IsToBatch(*c.node());
  if (c.num_inputs() == 3) {
    c.set_input_grad(0, c.Op(to_batch ? "BatchToSpaceND" : "SpaceToBatchND", {c.grad(), c.input(1), c.input(2)}));
  } else {
    c.set_input_grad(0, c.Op(to_batch ? "BatchToSpace" : "SpaceToBatch", {c.grad(), c.input(1)},
                             {{"block_size", c.AttrOr<int64_t>("block_size", 2)}}));
  }
  return absl::OkStatus();
}

MILLRACE_OP(SpaceToBatchND)
    .Input("input: T")
    .Input("block_shape: Tblock_shape")
    .Input("paddings: Tpaddings")
    .Output("output: T")
    .Attr("T: type")
    .Attr("Tblock_shape: {int32, int64} = int32")
    .Attr("Tpaddings: {int32, int64} = int32")
    .Shape(SpaceBatchShape)
    .Gradient(SpaceBatchGradient)
    .Summary("Pads and moves N-D blocks to the batch dimension.");
MILLRACE_KERNEL(SpaceToBatchND, kCpu, SpaceBatchKernel);
MILLRACE_KERNEL(SpaceToBatchND, kCuda, SpaceBatchKernel);
MILLRACE_HOST_MEMORY(SpaceToBatchND, "GPU", "block_shape");
MILLRACE_HOST_MEMORY(SpaceToBatchND, "GPU", "paddings");

MILLRACE_OP(BatchToSpaceND)
    .Input("input: T")
    .Input("block_shape: Tblock_shape")
    .Input("crops: Tcrops")
    .Output("output: T")
    .Attr("T: type")
    .Attr("Tblock_shape: {int32, int64} = int32")
    .Attr("Tcrops: {int32, int64} = int32")
    .Shape(SpaceBatchShape)
    .Gradient(SpaceBatchGradient)
    .Summary("Moves blocks from the batch dimension to N-D space and crops.");
MILLRACE_KERNEL(BatchToSpaceND, kCpu, SpaceBatchKernel);
MILLRACE_KERNEL(BatchToSpaceND, kCuda, SpaceBatchKernel);
MILLRACE_HOST_MEMORY(BatchToSpaceND, "GPU", "block_shape");
MILLRACE_HOST_MEMORY(BatchToSpaceND, "GPU", "crops");

MILLRACE_OP(SpaceToBatch)
    .Input("input: T")
    .Input("paddings: Tpaddings")
    .Output("output: T")
    .Attr("T: type")
    .Attr("Tpaddings: {int32, int64} = int32")
    .Attr("block_size: int >= 2")
    .Shape(SpaceBatchShape)
    .Gradient(SpaceBatchGradient)
    .Summary("Pads and moves 2-D blocks to the batch dimension.");
MILLRACE_KERNEL(SpaceToBatch, kCpu, SpaceBatchKernel);
MILLRACE_KERNEL(SpaceToBatch, kCuda, SpaceBatchKernel);
MILLRACE_HOST_MEMORY(SpaceToBatch, "GPU", "paddings");

MILLRACE_OP(BatchToSpace)
    .Input("input: T")
    .Input("crops: Tidx")
    .Output("output: T")
    .Attr("T: type")
    .Attr("block_size: int >= 2")
    .Attr("Tidx: {int32, int64} = int32")
    .Shape(SpaceBatchShape)
    .Gradient(SpaceBatchGradient)
    .Summary("Moves blocks from the batch dimension to 2-D space and crops.");
MILLRACE_KERNEL(BatchToSpace, kCpu, SpaceBatchKernel);
MILLRACE_KERNEL(BatchToSpace, kCuda, SpaceBatchKernel);
MILLRACE_HOST_MEMORY(BatchToSpace, "GPU", "crops");

}  // namespace
}  // namespace millrace
