// Element-wise ops on a GPU: each is a program of one functor, which NVRTC compiles when a plan first needs it.
#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "millrace/ops/kernels/broadcast.h"
#include "millrace/ops/kernels/cuda/compiled_kernels.h"
#include "millrace/ops/kernels/cuda/cuda_call.h"
#include "millrace/ops/kernels/cuda/elementwise_ops.h"
#include "millrace/ops/math/elementwise_shapes.h"

namespace millrace {
namespace {

// As the text of programs has it.
struct Strides {
  int rank = 0;
  int64_t size[12];
  int64_t step[ElementwiseProgram::kMostStrided][12];
};

// The strides of operands in a result of the broadcast shape; dimensions along which the same operands move are one.
StatusOr<Strides> StridesOf(const std::vector<const Shape*>& operands, const Shape& result) {
  Strides strides;
  const int rank = result.rank();
  std::vector<std::array<int64_t, ElementwiseProgram::kMostStrided + 1>> dims;  // innermost first: size, then steps
  std::vector<int64_t> next(operands.size(), 1);
  for (int d = 0; d < rank; ++d) {
    const int64_t n = result.dim(rank - 1 - d);
    if (n == 1) continue;
    std::array<int64_t, ElementwiseProgram::kMostStrided + 1> dim = {n};
    bool same = !dims.empty();
    for (size_t k = 0; k < operands.size(); ++k) {
      const Shape& shape = *operands[k];
      const int64_t own = d < shape.rank() ? shape.dim(shape.rank() - 1 - d) : 1;
      dim[k + 1] = own == 1 ? 0 : next[k];
      next[k] *= own;
      if (same) same = (dims.back()[k + 1] == 0) == (dim[k + 1] == 0);
    }
    if (same) {
      dims.back()[0] *= n;
    } else {
      dims.push_back(dim);
    }
  }
  if (dims.size() > 12) return Unimplemented("broadcasting takes more than 12 dimensions on a GPU");
  strides.rank = static_cast<int>(dims.size());
  for (int d = 0; d < strides.rank; ++d) {
    const auto& dim = dims[strides.rank - 1 - d];
    strides.size[d] = dim[0];
    for (size_t k = 0; k < operands.size(); ++k) strides.step[k][d] = dim[k + 1];
  }
  return strides;
}

// An operand, with the shape as which it is broadcast.
struct Operand {
  const Tensor* value;
  Shape shape;
};

class CudaElementwiseKernel : public Kernel {
 public:
  CudaElementwiseKernel(KernelInit& init, const std::string& functor, int arity, bool swapped = false)
      : ordinal_(CudaDevice::GpuOf(init.device())->ordinal()) {
    for (int i = 0; i < init.node().num_inputs(); ++i) program_.inputs.push_back(init.input_type(i));
    program_.output = init.output_type(0);
    program_.functor = functor;
    program_.arity = arity;
    if (swapped) std::swap(program_.inputs[0], program_.inputs[1]);
    // An error before the first step, which names the node.
    StatusOr<cudaKernel_t> kernel = CompiledKernel(program_.Text(), ElementwiseProgram::kKernel, ordinal_);
    if (kernel.ok()) {
      flat_ = *kernel;
    } else {
      init.Fail(kernel.status());
    }
  }

 protected:
  // The functor over operands that can be broadcast to `shape`.
  Status Run(KernelContext& ctx, const std::vector<Operand>& operands, const Shape& shape) {
    CudaCall call(ctx);
    MR_ASSIGN_OR_RETURN(Tensor * out, call.Output(0, shape));
    int64_t n = shape.num_elements();
    if (n == 0) return absl::OkStatus();
    bool flat = true;
    for (const Operand& operand : operands) flat &= operand.value->num_elements() == 1 || operand.shape == shape;
    std::vector<const void*> addresses(operands.size());
    std::vector<int> moves(operands.size());
    Strides strides;
    void* result = out->raw_data();
    std::vector<void*> arguments = {&n};
    cudaKernel_t kernel = flat_;
    if (!flat) {
      std::vector<const Shape*> shapes;
      for (const Operand& operand : operands) shapes.push_back(&operand.shape);
      MR_ASSIGN_OR_RETURN(strides, StridesOf(shapes, shape));
      MR_ASSIGN_OR_RETURN(kernel, Strided());
      arguments.push_back(&strides);
    }
    for (size_t i = 0; i < operands.size(); ++i) {
      MR_ASSIGN_OR_RETURN(addresses[i], call.Memory(*operands[i].value));
      moves[i] = operands[i].value->num_elements() == 1 ? 0 : 1;
      arguments.push_back(&addresses[i]);
      if (flat) arguments.push_back(&moves[i]);
    }
    arguments.push_back(&result);
    return call.LaunchOverElements(program_.functor, kernel, n, arguments);
  }

 private:
  StatusOr<cudaKernel_t> Strided() {
    MutexLock lock(&mu_);
    if (strided_ == nullptr) {
      ElementwiseProgram program = program_;
      program.is_strided = true;
      MR_ASSIGN_OR_RETURN(strided_, CompiledKernel(program.Text(), ElementwiseProgram::kKernel, ordinal_));
    }
    return strided_;
  }

  ElementwiseProgram program_;
  const int ordinal_;
  cudaKernel_t flat_ = nullptr;
  Mutex mu_;
  cudaKernel_t strided_ ABSL_GUARDED_BY(mu_) = nullptr;
};

// An op of ElementwiseOps().
class CudaListedKernel : public CudaElementwiseKernel {
 public:
  explicit CudaListedKernel(KernelInit& init) : CudaListedKernel(init, *FindElementwiseOp(init.node().type())) {}

  Status Compute(KernelContext& ctx) override {
    std::vector<Operand> operands;
    for (int i = 0; i < ctx.num_inputs(); ++i) operands.push_back({&ctx.input(i), ctx.input(i).shape()});
    if (op_.swapped) std::swap(operands[0], operands[1]);
    Shape shape = operands[0].shape;
    bool same = true;
    for (const Operand& operand : operands) same &= operand.shape == shape;
    if (!same) {
      if (!op_.broadcasts) return InvalidArgument("the operands have different shapes: ", Shapes(operands));
      Broadcast broadcast;
      MR_RETURN_IF_ERROR(operands.size() == 2
                             ? broadcast.Init({&operands[0].shape, &operands[1].shape})
                             : broadcast.Init({&operands[0].shape, &operands[1].shape, &operands[2].shape}));
      shape = broadcast.shape();
    }
    return Run(ctx, operands, shape);
  }

 private:
  CudaListedKernel(KernelInit& init, const ElementwiseOp& op)
      : CudaElementwiseKernel(init, op.functor, op.arity, op.swapped), op_(op) {}
  static std::string Shapes(const std::vector<Operand>& operands) {
    std::string text;
    for (const Operand& operand : operands) absl::StrAppend(&text, text.empty() ? "" : ", ", operand.shape.ToString());
    return text;
  }

  const ElementwiseOp& op_;
};

// A vector along the channels.
class CudaBiasAddKernel : public CudaElementwiseKernel {
 public:
  explicit CudaBiasAddKernel(KernelInit& init)
      : CudaElementwiseKernel(init, "AddFn", 2),
        channels_first_(init.node().AttrOr<std::string>("data_format", "NHWC") == "NCHW") {}

  Status Compute(KernelContext& ctx) override {
    const Tensor &value = ctx.input(0), &bias = ctx.input(1);
    if (value.rank() < 2) {
      return InvalidArgument("the value must have at least two dimensions, but has shape ", value.shape().ToString());
    }
    const int axis = channels_first_ ? 1 : value.rank() - 1;
    if (bias.rank() != 1 || bias.dim(0) != value.dim(axis)) {
      return InvalidArgument("the bias must be a vector of ", value.dim(axis),
                             " elements, as many as the value of shape ", value.shape().ToString(),
                             " has channels, but has shape ", bias.shape().ToString());
    }
    Shape::Dims dims(static_cast<size_t>(value.rank() - axis), 1);
    dims[0] = bias.dim(0);
    return Run(ctx, {{&value, value.shape()}, {&bias, Shape(absl::MakeConstSpan(dims))}}, value.shape());
  }

 private:
  const bool channels_first_;
};

// The condition may be a scalar or select rows.
class CudaSelectKernel : public CudaElementwiseKernel {
 public:
  explicit CudaSelectKernel(KernelInit& init) : CudaElementwiseKernel(init, "SelectFn", 3) {}
  Status Compute(KernelContext& ctx) override {
    const Tensor &condition = ctx.input(0), &a = ctx.input(1), &b = ctx.input(2);
    MR_ASSIGN_OR_RETURN(const Shape shape, ShapeOfCondition(condition.shape(), a.shape(), b.shape()));
    return Run(ctx, {{&condition, shape}, {&a, a.shape()}, {&b, b.shape()}}, a.shape());
  }
};

class CudaClipKernel : public CudaElementwiseKernel {
 public:
  explicit CudaClipKernel(KernelInit& init) : CudaElementwiseKernel(init, "ClipFn", 3) {}
  Status Compute(KernelContext& ctx) override {
    const Tensor &x = ctx.input(0), &low = ctx.input(1), &high = ctx.input(2);
    MR_RETURN_IF_ERROR(CheckBounds(x.shape(), low.shape(), high.shape()));
    return Run(ctx, {{&x, x.shape()}, {&low, low.shape()}, {&high, high.shape()}}, x.shape());
  }
};

class CudaCastKernel : public CudaElementwiseKernel {
 public:
  explicit CudaCastKernel(KernelInit& init) : CudaElementwiseKernel(init, "IdentityFn", 1) {
    if (init.node().AttrOr<bool>("Truncate", false)) init.Fail(Unimplemented("a Cast that truncates on a GPU"));
  }
  Status Compute(KernelContext& ctx) override {
    const Tensor& x = ctx.input(0);
    if (x.dtype() != ctx.output_type(0)) return Run(ctx, {{&x, x.shape()}}, x.shape());
    ctx.SetOutput(0, x);
    return absl::OkStatus();
  }
};

MILLRACE_KERNEL_OF(BiasAdd, kCuda, ({"T", CudaNumbers()}), CudaBiasAddKernel);
MILLRACE_KERNEL_OF(BiasAddV1, kCuda, ({"T", CudaNumbers()}), CudaBiasAddKernel);
MILLRACE_KERNEL_OF(Select, kCuda, ({"T", With(CudaReals(), {DType::kBool})}), CudaSelectKernel);
MILLRACE_KERNEL_OF(ClipByValue, kCuda, ({"T", CudaReals()}), CudaClipKernel);
MILLRACE_KERNEL_OF(Cast, kCuda, ({"DstT", CastTypes(), "SrcT", CastTypes()}), CudaCastKernel);

[[maybe_unused]] const bool elementwise_registered = [] {
  for (const ElementwiseOp& op : ElementwiseOps()) {
    KernelTypes types;
    if (op.attr != nullptr) types = {op.attr, op.types};
    KernelRegistry::Global().Register(
        op.name, kCuda,
        [](KernelInit& init) -> std::unique_ptr<Kernel> { return std::make_unique<CudaListedKernel>(init); },
        std::move(types));
  }
  return true;
}();

}  // namespace
}  // namespace millrace
