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

class CudaElementwiseKernel : public Kernel {
 public:
  explicit CudaElementwiseKernel(KernelInit& init) : op_(*FindElementwiseOp(init.node().type())) {
    for (int i = 0; i < init.node().num_inputs(); ++i) program_.inputs.push_back(init.input_type(i));
    program_.output = init.output_type(0);
    program_.functor = op_.functor;
    program_.arity = op_.arity;
    if (op_.swapped) std::swap(program_.inputs[0], program_.inputs[1]);
    ordinal_ = CudaDevice::GpuOf(init.device())->ordinal();
    // An error before the first step, which names the node.
    StatusOr<cudaKernel_t> kernel = CompiledKernel(program_.Text(), ElementwiseProgram::kKernel, ordinal_);
    if (kernel.ok()) {
      flat_ = *kernel;
    } else {
      init.Fail(kernel.status());
    }
  }

  Status Compute(KernelContext& ctx) override {
    CudaCall call(ctx);
    std::vector<const Tensor*> inputs;
    for (int i = 0; i < ctx.num_inputs(); ++i) inputs.push_back(&ctx.input(i));
    if (op_.swapped) std::swap(inputs[0], inputs[1]);
    Shape shape = inputs[0]->shape();
    bool flat = true;
    for (const Tensor* input : inputs) flat &= input->shape() == shape;
    if (!flat) {
      if (!op_.broadcasts) return InvalidArgument("the operands have different shapes: ", Shapes(inputs));
      Broadcast broadcast;
      MR_RETURN_IF_ERROR(inputs.size() == 2
                             ? broadcast.Init({&inputs[0]->shape(), &inputs[1]->shape()})
                             : broadcast.Init({&inputs[0]->shape(), &inputs[1]->shape(), &inputs[2]->shape()}));
      shape = broadcast.shape();
      flat = true;
      for (const Tensor* input : inputs) flat &= input->num_elements() == 1 || input->shape() == shape;
    }
    MR_ASSIGN_OR_RETURN(Tensor * out, call.Output(0, shape));
    int64_t n = shape.num_elements();
    if (n == 0) return absl::OkStatus();

    std::vector<const void*> addresses(inputs.size());
    std::vector<int> moves(inputs.size());
    Strides strides;
    void* result = out->raw_data();
    std::vector<void*> arguments = {&n};
    cudaKernel_t kernel = flat_;
    if (!flat) {
      std::vector<const Shape*> shapes;
      for (const Tensor* input : inputs) shapes.push_back(&input->shape());
      MR_ASSIGN_OR_RETURN(strides, StridesOf(shapes, shape));
      MR_ASSIGN_OR_RETURN(kernel, Strided());
      arguments.push_back(&strides);
    }
    for (size_t i = 0; i < inputs.size(); ++i) {
      MR_ASSIGN_OR_RETURN(addresses[i], call.Memory(*inputs[i]));
      moves[i] = inputs[i]->num_elements() == 1 ? 0 : 1;
      arguments.push_back(&addresses[i]);
      if (flat) arguments.push_back(&moves[i]);
    }
    arguments.push_back(&result);
    constexpr int kThreads = 256;
    constexpr int64_t kMostBlocks = 132 * 16;  // each thread goes on to further elements
    const dim3 blocks(static_cast<unsigned>(std::min((n + kThreads - 1) / kThreads, kMostBlocks)));
    return call.Launched(op_.functor, cudaLaunchKernel(reinterpret_cast<const void*>(kernel), blocks, dim3(kThreads),
                                                       arguments.data(), 0, call.stream()));
  }

 private:
  static std::string Shapes(const std::vector<const Tensor*>& inputs) {
    std::string text;
    for (const Tensor* input : inputs) absl::StrAppend(&text, text.empty() ? "" : ", ", input->shape().ToString());
    return text;
  }

  StatusOr<cudaKernel_t> Strided() {
    MutexLock lock(&mu_);
    if (strided_ == nullptr) {
      ElementwiseProgram program = program_;
      program.is_strided = true;
      MR_ASSIGN_OR_RETURN(strided_, CompiledKernel(program.Text(), ElementwiseProgram::kKernel, ordinal_));
    }
    return strided_;
  }

  const ElementwiseOp& op_;
  ElementwiseProgram program_;
  int ordinal_ = 0;
  cudaKernel_t flat_ = nullptr;
  Mutex mu_;
  cudaKernel_t strided_ ABSL_GUARDED_BY(mu_) = nullptr;
};

const bool registered = [] {
  for (const ElementwiseOp& op : ElementwiseOps()) {
    KernelTypes types;
    if (op.attr != nullptr) types = {op.attr, op.types};
    KernelRegistry::Global().Register(
        op.name, kCuda,
        [](KernelInit& init) -> std::unique_ptr<Kernel> { return std::make_unique<CudaElementwiseKernel>(init); },
        std::move(types));
  }
  return true;
}();

}  // namespace
}  // namespace millrace
