// One kernel for all optimizers: dense or sparse, for reference and resource variables. An optimizer defines only the
// update of one element:
//
//   struct GradientDescent {                            // in optimizer_steps.h, which GPUs read too
//     static constexpr int kVariables = 1;              // the variable, then its slots
//     static constexpr const char* kScalars[] = {"alpha"};
//     static constexpr const char* kFlag = nullptr;     // or the name of a bool attr
//     MR_OPTIMIZER_TYPES(FloatTypes)
//
//     template <typename T>
//     struct Step {
//       MR_FN Step(const T* scalars, bool flag) : alpha(scalars[0]) {}
//       MR_FN void operator()(T* v, T grad) const { v[0] -= alpha * grad; }
//       T alpha;
//     };
//   };
//   MILLRACE_KERNEL(ApplyGradientDescent, kCpu, OptimizerKernelOf<optimizer_steps::GradientDescent>);
//
// and a line in cuda/optimizers.cc.
// Inputs are found by name: the first kVariables are the variables, then in any order the scalars, "grad" or "delta"
// and, in the sparse ops, "indices". 16-bit types are computed with as float.
#pragma once

#include <array>
#include <type_traits>
#include <utility>

#include "absl/types/span.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/state/slice_addresses.h"
#include "millrace/runtime/kernel.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/runtime/variable.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {

using FloatAndComplexTypes = JoinTypes<FloatTypes, ComplexTypes>::type;

class OptimizerKernel : public Kernel {
 public:
  static constexpr int kMaxVariables = 4;
  static constexpr int kMaxScalars = 6;

  // Runs of `size` elements of variables and slots, run i at offsets[i]; in the gradient all runs are contiguous.
  // `which` selects some of them. `from` and `to` may alias.
  struct Runs {
    const void* const* from;
    void* const* to;
    const void* grad;
    const int64_t* offsets;
    absl::Span<const int64_t> which;
    int64_t size;
  };
  using Apply = void (*)(const Tensor* const* scalars, bool flag, const Runs& runs);

  Status Compute(KernelContext& ctx) override;

 protected:
  OptimizerKernel(KernelInit& init, int variables, absl::Span<const char* const> scalars, const char* flag);
  void set_apply(Apply apply) { apply_ = apply; }
  DType dtype() const { return dtype_; }
  bool flag() const { return flag_; }

  // Updates all elements of the variable and its slots. All have the gradient's shape; `from` and `to` may be the same.
  virtual Status ApplyDense(KernelContext& ctx, const Tensor* const* scalars, absl::Span<const Tensor> from,
                            const Tensor& grad, absl::Span<Tensor> to) const;
  // Updates the rows of the variable and its slots that `indices` name, those of one row in the order of the indices.
  // All have one shape, and the gradient's is `rows.shape`.
  virtual Status ApplyRows(KernelContext& ctx, const Tensor* const* scalars, const Variable::Rows& variables,
                           const SliceForm& rows, const Tensor& indices, const Tensor& grad) const;

 private:
  Status Dense(KernelContext& ctx, absl::Span<const Tensor> from, absl::Span<Tensor> to) const;
  Status Sparse(KernelContext& ctx, const Variable::Rows& variables) const;
  void GatherScalars(const KernelContext& ctx, const Tensor** scalars) const;

  DType dtype_ = DType::kInvalid;
  const int num_variables_;
  int num_scalars_ = 0;
  std::array<int, kMaxScalars> scalar_inputs_{};
  int grad_input_ = -1;
  int indices_input_ = -1;  // -1 in the dense ops
  bool flag_ = false;
  Apply apply_ = nullptr;
};

// Shape function of all optimizer ops: variable, slots and gradient must have the same shape, and scalars must be
// scalars.
Status OptimizerShape(ShapeContext& c);

namespace optimizer_internal {

template <typename T>
using ComputeType = std::conditional_t<std::is_same_v<T, half> || std::is_same_v<T, bfloat16>, float, T>;

template <typename T>
ComputeType<T> ScalarAs(const Tensor& tensor) {
  if (tensor.dtype() == DTypeOf<T>()) return static_cast<ComputeType<T>>(tensor.scalar<T>());
  return static_cast<ComputeType<T>>(static_cast<double>(tensor.scalar<int64_t>()));
}

// Prefetches a run of each variable.
template <typename T>
void PrefetchRun(void* const* data, int count, int64_t offset, int64_t size) {
  constexpr int64_t kLine = 64, kMostBytes = 512;
  const int64_t bytes = std::min<int64_t>(kMostBytes, size * static_cast<int64_t>(sizeof(T)));
  for (int k = 0; k < count; ++k) {
    const char* const at = reinterpret_cast<const char*>(static_cast<const T*>(data[k]) + offset);
    for (int64_t i = 0; i < bytes; i += kLine) __builtin_prefetch(at + i, 1);
  }
}

// Updates one run. The compiler is told that elements are independent (the contract of Variable::UpdateDense), so that
// it vectorises.
template <typename Step, typename T, size_t... k>
void ApplyRun(const Step& step, const T* const* from, T* const* to, const T* grad, int64_t size,
              std::index_sequence<k...>) {
  using C = ComputeType<T>;
  const T* const in[] = {from[k]...};
  T* const out[] = {to[k]...};
#pragma GCC ivdep
  for (int64_t i = 0; i < size; ++i) {
    C v[] = {static_cast<C>(in[k][i])...};
    step(v, static_cast<C>(grad[i]));
    ((out[k][i] = static_cast<T>(v[k])), ...);
  }
}

template <typename Optimizer, typename T>
void ApplyRuns(const Tensor* const* scalars, bool flag, const OptimizerKernel::Runs& runs) {
  using C = ComputeType<T>;
  constexpr int kScalars = static_cast<int>(std::size(Optimizer::kScalars));
  constexpr int kVariables = Optimizer::kVariables;
  C values[kScalars];
  for (int i = 0; i < kScalars; ++i) values[i] = ScalarAs<T>(*scalars[i]);
  const typename Optimizer::template Step<C> step(values, flag);
  const T* const grad = static_cast<const T*>(runs.grad);
  constexpr size_t kAhead = 6;
  for (size_t i = 0; i < runs.which.size(); ++i) {
    const int64_t run = runs.which[i];
    if (i + kAhead < runs.which.size()) {
      PrefetchRun<T>(runs.to, kVariables, runs.offsets[runs.which[i + kAhead]], runs.size);
    }
    const int64_t offset = runs.offsets[run];
    const T* from[kVariables];
    T* to[kVariables];
    for (int k = 0; k < kVariables; ++k) {
      from[k] = static_cast<const T*>(runs.from[k]) + offset;
      to[k] = static_cast<T*>(runs.to[k]) + offset;
    }
    ApplyRun(step, from, to, grad + run * runs.size, runs.size, std::make_index_sequence<kVariables>());
  }
}

}  // namespace optimizer_internal

template <typename Optimizer>
class OptimizerKernelOf : public OptimizerKernel {
 public:
  explicit OptimizerKernelOf(KernelInit& init)
      : OptimizerKernel(init, Optimizer::kVariables, Optimizer::kScalars, Optimizer::kFlag) {
    const bool known = DispatchType(typename Optimizer::DTypes{}, dtype(), [this](auto tag) {
      set_apply(&optimizer_internal::ApplyRuns<Optimizer, typename decltype(tag)::type>);
    });
    if (!known) FailDType(init, dtype());
  }
};

}  // namespace millrace
