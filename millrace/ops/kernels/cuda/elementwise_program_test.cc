// Every program that an op may need compiles for an H200, on machines without a GPU.
#include "millrace/ops/kernels/cuda/elementwise_program.h"

#include <map>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "millrace/graph/op_schema.h"
#include "millrace/ops/kernels/cuda/elementwise_ops.h"
#include "millrace/ops/kernels/cuda/nvrtc.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;

// The types of an op's operands and its result where the attr has this one.
ElementwiseProgram ProgramOf(const ElementwiseOp& op, DType dtype) {
  const OpSchema* const schema = OpRegistry::Global().FindOrNull(op.name);
  ElementwiseProgram program{.functor = op.functor, .arity = op.arity, .inputs = {}, .output = dtype};
  const auto type_of = [&](const OpArg& arg) { return arg.type != DType::kInvalid ? arg.type : dtype; };
  for (const OpArg& arg : schema->inputs) {
    program.inputs.push_back(type_of(arg));
    if (!arg.number_attr.empty()) program.inputs.insert(program.inputs.end(), 2, type_of(arg));
  }
  program.output = type_of(schema->outputs[0]);
  return program;
}

TEST(ElementwiseProgram, EveryOpCompilesForEveryType) {
  if (const auto version = NvrtcVersion(); !version.ok()) GTEST_SKIP() << version.status();
  // One text for all ops of a type: most of the time goes into what every text begins with.
  std::map<DType, std::string> kernels;
  for (const ElementwiseOp& op : ElementwiseOps()) {
    ASSERT_NE(OpRegistry::Global().FindOrNull(op.name), nullptr) << op.name;
    for (const DType dtype : op.attr == nullptr ? std::vector<DType>{DType::kBool} : op.types) {
      ASSERT_NE(ProgramTypeName(dtype), nullptr) << op.name;
      ElementwiseProgram program = ProgramOf(op, dtype);
      kernels[dtype] += program.Kernel(absl::StrCat(op.name, "_flat"));
      if (!op.broadcasts || op.arity == 1) continue;
      program.is_strided = true;
      kernels[dtype] += program.Kernel(absl::StrCat(op.name, "_strided"));
    }
  }
  for (const auto& [dtype, text] : kernels) {
    const StatusOr<std::string> code = CompileForGpu(ElementwiseProgram::Headers() + text, 90);
    EXPECT_TRUE(code.ok()) << DTypeName(dtype) << ": " << code.status();
  }
}

TEST(ElementwiseProgram, CastCompilesBetweenAllTypes) {
  if (const auto version = NvrtcVersion(); !version.ok()) GTEST_SKIP() << version.status();
  std::string kernels;
  for (const DType from : CastTypes()) {
    for (const DType to : CastTypes()) {
      const ElementwiseProgram program{.functor = "IdentityFn", .arity = 1, .inputs = {from}, .output = to};
      kernels += program.Kernel(absl::StrCat("cast_", static_cast<int>(from), "_", static_cast<int>(to)));
    }
  }
  const StatusOr<std::string> code = CompileForGpu(ElementwiseProgram::Headers() + kernels, 90);
  EXPECT_TRUE(code.ok()) << code.status();
}

TEST(ElementwiseProgram, WhatTheCompilerRefusesIsToldInItsWords) {
  if (const auto version = NvrtcVersion(); !version.ok()) GTEST_SKIP() << version.status();
  const ElementwiseProgram program{
      .functor = "NoSuchFn", .arity = 1, .inputs = {DType::kFloat}, .output = DType::kFloat};
  EXPECT_THAT(std::string(CompileForGpu(program.Text(), 90).status().message()), HasSubstr("NoSuchFn"));
}

}  // namespace
}  // namespace millrace
