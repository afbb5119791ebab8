#include "millrace/ops/training/cuda/optimizer_program.h"

#include "absl/strings/str_cat.h"
#include "millrace/ops/kernels/cuda/elementwise_program.h"
#include "millrace/ops/kernels/cuda/program_headers.h"

namespace millrace {

std::string OptimizerProgram::Headers() { return absl::StrCat(kProgramPrelude, kProgramOptimizerSteps); }
std::string OptimizerProgram::RowsHeaders() {
  return absl::StrCat(kProgramPrelude, kProgramOptimizerSteps, kProgramIndexedRows);
}

std::string OptimizerProgram::Text(DType dtype) const { return absl::StrCat(Headers(), Kernel(kKernel, dtype)); }
std::string OptimizerProgram::RowsText(DType dtype) const {
  return absl::StrCat(RowsHeaders(), RowsKernel(kRowsKernel, dtype));
}

std::string OptimizerProgram::ScalarArguments(DType dtype) const {
  std::string text;
  for (int i = 0; i < scalars; ++i)
    absl::StrAppend(&text, ", const ", i == step_scalar ? "int64_t" : ProgramTypeName(dtype), "* scalar", i);
  return text;
}

std::string OptimizerProgram::MakeStep() const {
  std::string text = "  using C = decltype(Widen(*grad));\n  const C scalars[] = {";
  for (int i = 0; i < scalars; ++i) absl::StrAppend(&text, i == step_scalar ? "C(*scalar" : "Widen(*scalar", i, "), ");
  return absl::StrCat(text, "};\n  const optimizer_steps::", optimizer, "::Step<C> step(scalars, flag != 0);\n");
}

std::string OptimizerProgram::Kernel(const std::string& name, DType dtype) const {
  const char* const type = ProgramTypeName(dtype);
  std::string text = absl::StrCat("namespace millrace {\nextern \"C\" __global__ void ", name, "(int64_t n, int flag",
                                  ScalarArguments(dtype));
  // The old and the new value of a variable may be in the same place: no __restrict__.
  for (int i = 0; i < variables; ++i) absl::StrAppend(&text, ", const ", type, "* from", i);
  absl::StrAppend(&text, ", const ", type, "* grad");
  for (int i = 0; i < variables; ++i) absl::StrAppend(&text, ", ", type, "* to", i);
  absl::StrAppend(
      &text, ") {\n", MakeStep(), "  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;\n",
      "  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += stride) {\n",
      "    C v[] = {");
  for (int i = 0; i < variables; ++i) absl::StrAppend(&text, "Widen(from", i, "[i]), ");
  absl::StrAppend(&text, "};\n    step(v, Widen(grad[i]));\n");
  for (int i = 0; i < variables; ++i) absl::StrAppend(&text, "    to", i, "[i] = Narrow<", type, ">(v[", i, "]);\n");
  absl::StrAppend(&text, "  }\n}\n}  // namespace millrace\n");
  return text;
}

// One thread does all steps of an element; between them, values are rounded as if they were in memory.
std::string OptimizerProgram::RowsKernel(const std::string& name, DType dtype) const {
  const char* const type = ProgramTypeName(dtype);
  std::string text = absl::StrCat("namespace millrace {\nextern \"C\" __global__ void ", name,
                                  "(int64_t n, int64_t columns, int flag, const Slot* slots", ScalarArguments(dtype),
                                  ", const ", type, "* grad");
  for (int i = 0; i < variables; ++i) absl::StrAppend(&text, ", ", type, "* value", i);
  absl::StrAppend(&text, ") {\n", MakeStep(),
                  "  ForUpdatedRows(n, columns, slots, [&](int64_t row, int64_t column, int64_t position, Positions "
                  "next) {\n    const int64_t i = row * columns + column;\n    C v[] = {");
  for (int i = 0; i < variables; ++i) absl::StrAppend(&text, "Widen(value", i, "[i]), ");
  absl::StrAppend(&text, "};\n    for (; position >= 0; position = next()) {\n",
                  "      step(v, Widen(grad[position * columns + column]));\n",
                  "      for (C& x : v) x = Widen(Narrow<", type, ">(x));\n    }\n");
  for (int i = 0; i < variables; ++i) absl::StrAppend(&text, "    value", i, "[i] = Narrow<", type, ">(v[", i, "]);\n");
  absl::StrAppend(&text, "  });\n}\n}  // namespace millrace\n");
  return text;
}

}  // namespace millrace
