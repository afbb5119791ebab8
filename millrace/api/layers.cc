#include "millrace/api/layers.h"

#include "millrace/api/layer_parts.h"
#include "millrace/api/losses.h"
#include "millrace/api/op_call.h"
#include "millrace/api/operators.h"

namespace millrace::layers {

using api_internal::CheckPositive;
using api_internal::FinishLayer;
using api_internal::LastDim;
using api_internal::PaddingName;

namespace {

std::vector<int64_t> Nhwc(const std::array<int64_t, 2>& hw) { return {1, hw[0], hw[1], 1}; }

Output Nothing(const Scope& s) { return Output(s, Endpoint{}); }

// By the strength of L2 that options have, and by the regularizer.
template <typename Options>
api_internal::Weight MakeKernel(const Scope& s, const Shape& shape, DType dtype, const Options& options) {
  api_internal::Weight kernel = api_internal::MakeWeight(s, "kernel", shape, options.kernel_initializer,
                                                         {dtype, options.trainable, options.kernel_regularizer});
  if (options.l2 != 0 && !kernel.variable.reused()) {
    for (const Var& part : kernel.variable.parts()) losses::L2Regularization(s, part, options.l2);
  }
  return kernel;
}

// [d0, d1, ..., units] for x of [d0, d1, ..., inputs] whose leading dimensions may be unknown.
Output RestoreShape(const Scope& s, const Output& y, const Output& x, int64_t units) {
  const int rank = x.shape().rank();
  std::vector<int32_t> dims;
  int unknown = 0;
  for (int i = 0; i < rank - 1; ++i) {
    dims.push_back(static_cast<int32_t>(x.shape().dim(i)));
    unknown += x.shape().dim(i) < 0;
  }
  dims.push_back(static_cast<int32_t>(units));
  if (unknown <= 1) return Op(s, "Reshape", {y, dims});
  const Output lead = Op(s, "Slice", {Op(s, "Shape", {x}), std::vector<int32_t>{0}, std::vector<int32_t>{rank - 1}});
  const Output shape = Op(s, "ConcatV2", {InputList{lead, std::vector<int32_t>{dims.back()}}, 0});
  return Op(s, "Reshape", {y, shape});
}

Output Pool(const Scope& scope, const char* op, const char* arg_name, const Input& x, std::array<int64_t, 2> window,
            const PoolOptions& options) {
  return Op(scope.op_name().empty() ? scope.WithOpName(arg_name) : scope, op, {x},
            {{"ksize", Nhwc(window)},
             {"strides", Nhwc(options.strides.value_or(window))},
             {"padding", PaddingName(options.padding)}});
}

}  // namespace

Output Dense(const Scope& scope, const Input& x, int64_t units, const DenseOptions& options) {
  const Scope s = scope.ForComposite("dense");
  const Output in = x.In(s);
  const int64_t inputs = LastDim(s, in, 2);
  if (inputs < 0 || !CheckPositive(s, "the number of units", units)) return Nothing(s);
  const Output weights = MakeKernel(s, Shape({inputs, units}), in.dtype(), options).value;
  if (in.shape().rank() == 2) return FinishLayer(s, Op(s, "MatMul", {in, weights}), in.dtype(), units, options);
  const Output rows = Op(s, "Reshape", {in, std::vector<int32_t>{-1, static_cast<int32_t>(inputs)}});
  const Output y = FinishLayer(s, Op(s, "MatMul", {rows, weights}), in.dtype(), units, options);
  return RestoreShape(s, y, in, units);
}

Output Conv2D(const Scope& scope, const Input& x, int64_t filters, std::array<int64_t, 2> kernel_size,
              const Conv2DOptions& options) {
  const Scope s = scope.ForComposite("conv2d");
  const Output in = x.In(s);
  const int64_t channels = LastDim(s, in, 4);
  if (channels < 0 || !CheckPositive(s, "the number of filters", filters) ||
      !CheckPositive(s, "the window's height", kernel_size[0]) ||
      !CheckPositive(s, "the window's width", kernel_size[1])) {
    return Nothing(s);
  }
  const Shape shape({kernel_size[0], kernel_size[1], channels, filters});
  const Output weights = MakeKernel(s, shape, in.dtype(), options).value;
  const Output y = Op(s, "Conv2D", {in, weights},
                      {{"strides", Nhwc(options.strides)},
                       {"dilations", Nhwc(options.dilations)},
                       {"padding", PaddingName(options.padding)}});
  return FinishLayer(s, y, in.dtype(), filters, options);
}

Output MaxPool2D(const Scope& scope, const Input& x, std::array<int64_t, 2> window, const PoolOptions& options) {
  return Pool(scope, "MaxPool", "max_pool2d", x, window, options);
}

Output AvgPool2D(const Scope& scope, const Input& x, std::array<int64_t, 2> window, const PoolOptions& options) {
  return Pool(scope, "AvgPool", "avg_pool2d", x, window, options);
}

Output Flatten(const Scope& scope, const Input& x) {
  const Scope s = scope.ForComposite("flatten");
  const Output in = x.In(s);
  if (!s.ok()) return Nothing(s);
  int64_t rest = 1;
  const PartialShape shape = in.shape();
  for (int i = 1; i < shape.rank(); ++i) rest = rest < 0 || shape.dim(i) < 0 ? -1 : rest * shape.dim(i);
  if (shape.known_rank() && shape.rank() >= 1 && rest > 0) {
    return Op(s, "Reshape", {in, std::vector<int64_t>{-1, rest}});
  }
  const Output batch = Op(s, "Slice", {Op(s, "Shape", {in}), std::vector<int32_t>{0}, std::vector<int32_t>{1}});
  return Op(s, "Reshape", {in, Op(s, "ConcatV2", {InputList{batch, std::vector<int32_t>{-1}}, 0})});
}

}  // namespace millrace::layers
