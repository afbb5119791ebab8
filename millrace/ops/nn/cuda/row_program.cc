#include "millrace/ops/nn/cuda/row_program.h"

#include "absl/strings/substitute.h"
#include "millrace/ops/kernels/cuda/elementwise_program.h"
#include "millrace/ops/kernels/cuda/program_headers.h"

namespace millrace {

std::string RowProgram::Headers() { return absl::StrCat(kProgramPrelude, kProgramFunctors, kProgramRows); }

std::string RowProgram::Text() const { return absl::StrCat(Headers(), Kernel(kKernel)); }

std::string RowProgram::Kernel(const std::string& name) const {
  const char* arguments = "const $0* x, $0* y";
  const char* call = "SoftmaxRow<false>(rows, width, x, y)";
  if (op == "LogSoftmax") {
    call = "SoftmaxRow<true>(rows, width, x, y)";
  } else if (op == "SoftmaxCrossEntropyWithLogits") {
    arguments = "const RowSteps steps, const $0* x, const $0* labels, $0* loss, $0* backprop";
    call = "CrossEntropyRow(rows, width, steps, x, labels, loss, backprop)";
  } else if (op == "SparseSoftmaxCrossEntropyWithLogits") {
    arguments = "const $0* x, const $1* classes, $0* loss, $0* backprop";
    call = "SparseCrossEntropyRow(rows, width, x, classes, loss, backprop)";
  }
  const char* const labels = classes == DType::kInvalid ? "" : ProgramTypeName(classes);
  return absl::StrCat("namespace millrace {\nextern \"C\" __global__ void ", name, "(int64_t rows, int64_t width, ",
                      absl::Substitute(arguments, ProgramTypeName(dtype), labels), ") {\n  ", call,
                      ";\n}\n}  // namespace millrace\n");
}

}  // namespace millrace
