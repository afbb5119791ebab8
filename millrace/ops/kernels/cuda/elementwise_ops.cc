#include "millrace/ops/kernels/cuda/elementwise_ops.h"

#include "millrace/ops/kernels/cuda/cuda_call.h"

namespace millrace {
namespace {

std::vector<DType> Floats() { return {DType::kHalf, DType::kBFloat16, DType::kFloat, DType::kDouble}; }

// Not int32, whose arithmetic is the host's.
std::vector<DType> Reals() {
  std::vector<DType> types = Floats();
  for (const DType dtype :
       {DType::kInt8, DType::kUInt8, DType::kInt16, DType::kUInt16, DType::kUInt32, DType::kInt64, DType::kUInt64})
    types.push_back(dtype);
  return types;
}

std::vector<ElementwiseOp> Make() {
  std::vector<ElementwiseOp> ops;
  const auto unary = [&](const char* name, const char* functor, std::vector<DType> types) {
    ops.push_back({name, functor, 1, "T", std::move(types)});
  };
  const auto binary = [&](const char* name, const char* functor, std::vector<DType> types, bool broadcasts = true,
                          bool swapped = false) {
    ops.push_back({name, functor, 2, "T", std::move(types), broadcasts, swapped});
  };
  unary("Neg", "NegFn", Floats());
  unary("Abs", "AbsFn", Floats());
  unary("Sign", "SignFn", Floats());
  unary("Square", "SquareFn", CudaNumbers());
  unary("Sqrt", "SqrtFn", Floats());
  unary("Rsqrt", "RsqrtFn", Floats());
  unary("Exp", "ExpFn", Floats());
  unary("Expm1", "Expm1Fn", Floats());
  unary("Log", "LogFn", Floats());
  unary("Log1p", "Log1pFn", Floats());
  unary("Sigmoid", "SigmoidFn", Floats());
  unary("Tanh", "TanhFn", Floats());
  unary("Reciprocal", "ReciprocalFn", Floats());
  unary("Inv", "ReciprocalFn", Floats());
  unary("Relu", "ReluFn", Reals());
  unary("Relu6", "Relu6Fn", Reals());
  unary("ZerosLike", "ZeroFn", Reals());
  unary("OnesLike", "OneFn", Reals());
  ops.push_back({"LogicalNot", "NotFn", 1, nullptr, {}});
  binary("Add", "AddFn", CudaNumbers());
  binary("AddV2", "AddFn", CudaNumbers());
  binary("Sub", "SubFn", CudaNumbers());
  binary("Mul", "MulFn", CudaNumbers());
  binary("Div", "DivideFn", Floats());
  binary("RealDiv", "DivideFn", Floats());
  binary("DivNoNan", "DivNoNanFn", Floats());
  binary("MulNoNan", "MulNoNanFn", Floats());
  binary("Maximum", "MaximumFn", Reals());
  binary("Minimum", "MinimumFn", Reals());
  binary("SquaredDifference", "SquaredDifferenceFn", Floats());
  binary("Less", "LessFn", Reals());
  binary("LessEqual", "LessEqualFn", Reals());
  binary("Greater", "LessFn", Reals(), true, /*swapped=*/true);
  binary("GreaterEqual", "LessEqualFn", Reals(), true, /*swapped=*/true);
  binary("SqrtGrad", "SqrtGradFn", Floats(), false);
  binary("RsqrtGrad", "RsqrtGradFn", Floats(), false);
  binary("SigmoidGrad", "SigmoidGradFn", Floats(), false);
  binary("TanhGrad", "TanhGradFn", Floats(), false);
  binary("ReciprocalGrad", "ReciprocalGradFn", Floats(), false);
  binary("InvGrad", "ReciprocalGradFn", Floats(), false);
  binary("ReluGrad", "ReluGradFn", Reals(), false);
  binary("Relu6Grad", "Relu6GradFn", Reals(), false);
  ops.push_back({"LogicalAnd", "LogicalAndFn", 2, nullptr, {}});
  ops.push_back({"LogicalOr", "LogicalOrFn", 2, nullptr, {}});
  ops.push_back({"SelectV2", "SelectFn", 3, "T", Reals()});
  ops.push_back({"AddN", "AddFn", 2, "T", CudaNumbers(), false});
  return ops;
}

}  // namespace

const std::vector<ElementwiseOp>& ElementwiseOps() {
  static const auto* const ops = new std::vector<ElementwiseOp>(Make());
  return *ops;
}

const ElementwiseOp* FindElementwiseOp(const std::string& name) {
  for (const ElementwiseOp& op : ElementwiseOps()) {
    if (op.name == name) return &op;
  }
  return nullptr;
}

}  // namespace millrace
