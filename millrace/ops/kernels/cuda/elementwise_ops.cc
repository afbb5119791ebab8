#include "millrace/ops/kernels/cuda/elementwise_ops.h"

#include "millrace/ops/kernels/cuda/cuda_call.h"

namespace millrace {
namespace {

std::vector<DType> WithBool(std::vector<DType> types) {
  types.push_back(DType::kBool);
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
  unary("Neg", "NegFn", CudaRealFloats());
  unary("Abs", "AbsFn", CudaRealFloats());
  unary("Sign", "SignFn", CudaRealFloats());
  unary("Square", "SquareFn", CudaNumbers());
  unary("Sqrt", "SqrtFn", CudaRealFloats());
  unary("Rsqrt", "RsqrtFn", CudaRealFloats());
  unary("Exp", "ExpFn", CudaRealFloats());
  unary("Expm1", "Expm1Fn", CudaRealFloats());
  unary("Log", "LogFn", CudaRealFloats());
  unary("Log1p", "Log1pFn", CudaRealFloats());
  unary("Sigmoid", "SigmoidFn", CudaRealFloats());
  unary("Tanh", "TanhFn", CudaRealFloats());
  unary("Reciprocal", "ReciprocalFn", CudaRealFloats());
  unary("Inv", "ReciprocalFn", CudaRealFloats());
  unary("Ceil", "CeilFn", CudaRealFloats());
  unary("Floor", "FloorFn", CudaRealFloats());
  unary("Rint", "RintFn", CudaRealFloats());
  unary("Round", "RintFn", CudaRealFloats());
  unary("Sin", "SinFn", CudaRealFloats());
  unary("Cos", "CosFn", CudaRealFloats());
  unary("IsNan", "IsNanFn", CudaRealFloats());
  unary("IsInf", "IsInfFn", CudaRealFloats());
  unary("IsFinite", "IsFiniteFn", CudaRealFloats());
  unary("Relu", "ReluFn", CudaReals());
  unary("Relu6", "Relu6Fn", CudaReals());
  unary("Softplus", "SoftplusFn", CudaRealFloats());
  unary("Elu", "EluFn", CudaRealFloats());
  unary("Selu", "SeluFn", CudaRealFloats());
  unary("ZerosLike", "ZeroFn", CudaReals());
  unary("OnesLike", "OneFn", CudaReals());
  ops.push_back({"LogicalNot", "NotFn", 1, nullptr, {}});
  binary("Add", "AddFn", CudaNumbers());
  binary("AddV2", "AddFn", CudaNumbers());
  binary("Sub", "SubFn", CudaNumbers());
  binary("Mul", "MulFn", CudaNumbers());
  binary("Div", "DivideFn", CudaRealFloats());
  binary("RealDiv", "DivideFn", CudaRealFloats());
  binary("Pow", "PowerFn", CudaRealFloats());
  binary("DivNoNan", "DivNoNanFn", CudaRealFloats());
  binary("MulNoNan", "MulNoNanFn", CudaRealFloats());
  binary("Maximum", "MaximumFn", CudaReals());
  binary("Minimum", "MinimumFn", CudaReals());
  binary("SquaredDifference", "SquaredDifferenceFn", CudaRealFloats());
  binary("Less", "LessFn", CudaReals());
  binary("LessEqual", "LessEqualFn", CudaReals());
  binary("Greater", "LessFn", CudaReals(), true, /*swapped=*/true);
  binary("GreaterEqual", "LessEqualFn", CudaReals(), true, /*swapped=*/true);
  binary("Equal", "EqualFn", WithBool(CudaReals()));
  binary("NotEqual", "NotEqualFn", WithBool(CudaReals()));
  binary("SqrtGrad", "SqrtGradFn", CudaRealFloats(), false);
  binary("RsqrtGrad", "RsqrtGradFn", CudaRealFloats(), false);
  binary("SigmoidGrad", "SigmoidGradFn", CudaRealFloats(), false);
  binary("TanhGrad", "TanhGradFn", CudaRealFloats(), false);
  binary("ReciprocalGrad", "ReciprocalGradFn", CudaRealFloats(), false);
  binary("InvGrad", "ReciprocalGradFn", CudaRealFloats(), false);
  binary("ReluGrad", "ReluGradFn", CudaReals(), false);
  binary("Relu6Grad", "Relu6GradFn", CudaReals(), false);
  binary("SoftplusGrad", "SoftplusGradFn", CudaRealFloats(), false);
  binary("EluGrad", "EluGradFn", CudaRealFloats(), false);
  binary("SeluGrad", "SeluGradFn", CudaRealFloats(), false);
  ops.push_back({"LogicalAnd", "LogicalAndFn", 2, nullptr, {}});
  ops.push_back({"LogicalOr", "LogicalOrFn", 2, nullptr, {}});
  ops.push_back({"SelectV2", "SelectFn", 3, "T", CudaReals()});
  ops.push_back({"AddN", "AddFn", 2, "T", CudaNumbers(), false});
  return ops;
}

}  // namespace

std::vector<DType> CastTypes() {
  std::vector<DType> types = WithBool(CudaReals());
  types.push_back(DType::kInt32);
  return types;
}

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
