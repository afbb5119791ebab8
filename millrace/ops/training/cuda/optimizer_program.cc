#include "millrace/ops/training/cuda/optimizer_program.h"

#include "absl/strings/str_cat.h"
#include "millrace/ops/kernels/cuda/elementwise_program.h"
#include "millrace/ops/kernels/cuda/program_headers.h"

namespace millrace {

std::string OptimizerProgram::Headers() { return absl::StrCat(kProgramPrelude, kProgramOptimizerSteps); }

std::string OptimizerProgram::Text(DType dtype) const { return absl::StrCat(Headers(), Kernel(kKernel, dtype)); }

std::string OptimizerProgram::Kernel(const std::string& name, DType dtype) const {
  const char* const type = ProgramTypeName(dtype);
  std::string text = absl::StrCat("namespace millrace {\nextern \"C\" __global__ void ", name, "(int64_t n, int flag");
  // The old and the new value of a variable may be in the same place: no __restrict__.
  for (int i = 0; i < scalars; ++i) absl::StrAppend(&text, ", const ", type, "* scalar", i);
  for (int i = 0; i < variables; ++i) absl::StrAppend(&text, ", const ", type, "* from", i);
  absl::StrAppend(&text, ", const ", type, "* grad");
  for (int i = 0; i < variables; ++i) absl::StrAppend(&text, ", ", type, "* to", i);
  absl::StrAppend(&text, ") {\n  using C = decltype(Widen(*grad));\n  const C scalars[] = {");
  for (int i = 0; i < scalars; ++i) absl::StrAppend(&text, "Widen(*scalar", i, "), ");
  absl::StrAppend(
      &text, "};\n  const optimizer_steps::", optimizer, "::Step<C> step(scalars, flag != 0);\n",
      "  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;\n",
      "  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += stride) {\n",
      "    C v[] = {");
  for (int i = 0; i < variables; ++i) absl::StrAppend(&text, "Widen(from", i, "[i]), ");
  absl::StrAppend(&text, "};\n    step(v, Widen(grad[i]));\n");
  for (int i = 0; i < variables; ++i) absl::StrAppend(&text, "    to", i, "[i] = Narrow<", type, ">(v[", i, "]);\n");
  absl::StrAppend(&text, "  }\n}\n}  // namespace millrace\n");
  return text;
}

}  // namespace millrace
