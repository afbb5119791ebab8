// Every program that an op may need compiles for an H200, on machines without a GPU.
#include "millrace/ops/kernels/cuda/elementwise_program.h"

#include <array>
#include <limits>
#include <map>

#include "absl/algorithm/container.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "millrace/graph/op_schema.h"
#include "millrace/ops/kernels/cuda/cpu_results_testing.h"
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

// The same text, run on the host.
TEST(ElementwiseProgram, EveryOpGivesWhatTheCpuGives) {
  for (const DType dtype : {DType::kFloat, DType::kBFloat16, DType::kInt8, DType::kBool}) {
    std::string text = ElementwiseProgram::Headers();
    std::vector<std::string> kernels;
    std::vector<const ElementwiseOp*> ops;
    for (const ElementwiseOp& op : ElementwiseOps()) {
      const std::vector<DType> types = op.attr == nullptr ? std::vector<DType>{DType::kBool} : op.types;
      if (!absl::c_linear_search(types, dtype)) continue;
      ops.push_back(&op);
      kernels.push_back(absl::StrCat("kernel_", op.name));
      text += ProgramOf(op, dtype).Kernel(kernels.back());
    }
    HostProgram program(text, kernels);
    ASSERT_TRUE(program.ok());
    for (size_t k = 0; k < ops.size(); ++k) {
      SCOPED_TRACE(absl::StrCat(ops[k]->name, " of ", DTypeName(dtype)));
      const ElementwiseProgram shape = ProgramOf(*ops[k], dtype);
      std::vector<Tensor> inputs;
      for (size_t i = 0; i < shape.inputs.size(); ++i) {
        inputs.push_back(Noise(shape.inputs[i], Shape({70}), static_cast<uint32_t>(5 + i)).Clone());
        if (inputs[i].dtype() != DType::kFloat) continue;
        constexpr float kInfinity = std::numeric_limits<float>::infinity(), kNan = kInfinity - kInfinity;
        std::copy_n(std::array<float, 7>{kInfinity, -kInfinity, kNan, 0, -0.0f, 30, -30}.begin(), 7,
                    inputs[i].data<float>() + 8 * i);
      }
      const Tensor want = OnCpu(ops[k]->name, inputs, {})[0];
      if (ops[k]->swapped) std::swap(inputs[0], inputs[1]);
      Tensor got(want.dtype(), want.shape());
      int64_t n = 70;
      int moves = 1;
      std::vector<const void*> addresses;
      for (const Tensor& input : inputs) addresses.push_back(input.raw_data());
      std::vector<void*> arguments = {&n};
      for (const void*& address : addresses) arguments.insert(arguments.end(), {&address, &moves});
      void* to = got.raw_data();
      arguments.push_back(&to);
      LaunchElements(program, kernels[k], arguments);
      ExpectNear(got, want);
    }
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
