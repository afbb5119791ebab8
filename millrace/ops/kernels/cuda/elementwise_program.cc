#include "millrace/ops/kernels/cuda/elementwise_program.h"

#include "millrace/ops/kernels/cuda/program_headers.h"

namespace millrace {

const char* ProgramTypeName(DType dtype) {
  switch (dtype) {
    case DType::kFloat:
      return "float";
    case DType::kDouble:
      return "double";
    case DType::kHalf:
      return "half";
    case DType::kBFloat16:
      return "bfloat16";
    case DType::kBool:
      return "bool";
    case DType::kInt8:
      return "signed char";
    case DType::kUInt8:
      return "unsigned char";
    case DType::kInt16:
      return "short";
    case DType::kUInt16:
      return "unsigned short";
    case DType::kInt32:
      return "int";
    case DType::kUInt32:
      return "unsigned int";
    case DType::kInt64:
      return "long long";
    case DType::kUInt64:
      return "unsigned long long";
    case DType::kComplex64:
      return "complex<float>";
    case DType::kComplex128:
      return "complex<double>";
    default:
      return nullptr;
  }
}

std::string ElementwiseProgram::Headers() { return absl::StrCat(kProgramPrelude, kProgramFunctors); }

std::string ElementwiseProgram::Kernel(const std::string& name) const {
  std::string text = absl::StrCat("namespace millrace {\nextern \"C\" __global__ void ", name, "(int64_t n");
  const int operands = static_cast<int>(inputs.size());
  if (is_strided) absl::StrAppend(&text, ", const Strides strides");
  for (int k = 0; k < operands; ++k) {
    absl::StrAppend(&text, ", const ", ProgramTypeName(inputs[k]), "* p", k);
    if (!is_strided) absl::StrAppend(&text, ", int moves", k);
  }
  absl::StrAppend(
      &text, ", ", ProgramTypeName(output), "* out) {\n",
      "  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;\n",
      "  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += stride) {\n");
  if (is_strided)
    absl::StrAppend(&text, "    int64_t at[", operands, "];\n    Offsets(strides, i, ", operands, ", at);\n");
  for (int k = 0; k < operands; ++k) {
    const std::string at = is_strided ? absl::StrCat("at[", k, "]") : absl::StrCat("moves", k, " ? i : 0");
    absl::StrAppend(&text, "    const auto v", k, " = Widen(p", k, "[", at, "]);\n");
  }
  absl::StrAppend(&text, "    auto y = ", functor, "()(v0");
  for (int k = 1; k < arity; ++k) absl::StrAppend(&text, ", v", k);
  absl::StrAppend(&text, ");\n");
  for (int k = arity; k < operands; ++k) absl::StrAppend(&text, "    y = ", functor, "()(y, v", k, ");\n");
  absl::StrAppend(&text, "    out[i] = Narrow<", ProgramTypeName(output), ">(y);\n  }\n}\n}  // namespace millrace\n");
  return text;
}

}  // namespace millrace
