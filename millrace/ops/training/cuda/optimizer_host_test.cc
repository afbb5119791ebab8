// The text of the optimizers' programs, run on the host, does what the CPU's kernels do, with whole variables and by
// rows.
#include <algorithm>
#include <map>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "millrace/graph/op_schema.h"
#include "millrace/ops/kernels/cuda/cpu_results_testing.h"
#include "millrace/ops/training/cuda/optimizer_program.h"

namespace millrace {
namespace {

// One update of variables and slots, which have values of their own, so that arguments in a wrong order show.
struct UpdateCase {
  std::vector<Tensor> values;             // before it
  std::map<std::string, Tensor> scalars;  // by name
  Tensor grad;
  Tensor indices;
  int flag = 0;
  std::vector<Tensor> want;  // after it, on the CPU
};

UpdateCase Updated(const GpuOptimizer& optimizer, DType dtype, const Shape& shape, const Tensor& indices) {
  const OpSchema& schema = *OpRegistry::Global().FindOrNull(optimizer.op);
  UpdateCase c;
  Graph graph;
  GraphBuilder b(&graph);
  b.device = "/device:CPU:0";
  std::vector<Endpoint> inputs;
  std::vector<std::string> inits, reads;
  for (const OpArg& arg : schema.inputs) {
    const int i = static_cast<int>(inputs.size());
    if (arg.type == DType::kResource) {
      const std::string name = absl::StrCat("v", i);
      const Endpoint v =
          b.Op("VarHandleOp", {}, {{"dtype", dtype}, {"shape", PartialShape(shape)}, {"shared_name", name}}, name);
      c.values.push_back(OnCpu("Abs", {Noise(dtype, shape, 20 + i)}, {})[0]);
      inits.push_back(b.AddNode("AssignVariableOp", {v, b.Const(c.values.back())}, {}, name + "_init")->name());
      reads.push_back(b.Op("ReadVariableOp", {v}, {{"dtype", dtype}}, name + "_read").name());
      inputs.push_back(v);
    } else if (arg.name == "grad" || arg.name == "delta") {
      Shape grad_shape = shape;
      if (optimizer.by_rows) grad_shape.set_dim(0, indices.num_elements());
      c.grad = Noise(dtype, grad_shape, 40);
      inputs.push_back(b.Const(c.grad));
    } else if (arg.name == "indices") {
      c.indices = indices;
      inputs.push_back(b.Const(indices));
    } else {
      const float number = arg.name == "lr_power"      ? -0.5f
                           : arg.name == "global_step" ? 3
                                                       : 0.05f * static_cast<float>(1 + i);
      const DType type = arg.name == "global_step" ? DType::kInt64 : dtype;
      c.scalars[arg.name] = OnCpu("Cast", {Tensor::Scalar(number)}, {{"DstT", type}})[0];
      inputs.push_back(b.Const(c.scalars[arg.name]));
    }
  }
  const Node* apply = b.AddNode(optimizer.op, inputs, {}, "apply");
  EXPECT_TRUE(b.ok()) << b.status();
  c.flag = apply->AttrOr<bool>("update_slots", false) ? 1 : 0;
  auto session = Session::Create().value();
  EXPECT_TRUE(session->Extend(graph).ok());
  EXPECT_TRUE(session->RunTargets(inits).ok());
  const Status status = session->RunTargets({apply->name()});
  EXPECT_TRUE(status.ok()) << status;
  c.want = session->Run(reads).value();
  return c;
}

std::vector<const void*> ScalarsOf(const GpuOptimizer& optimizer, const UpdateCase& c) {
  // The program's order of scalars is that of the optimizer's list, the graph's that of the schema.
  std::vector<const void*> addresses;
  for (const std::string& name : optimizer.scalars) addresses.push_back(c.scalars.at(name).raw_data());
  return addresses;
}

class OptimizerPrograms : public ::testing::TestWithParam<DType> {};

TEST_P(OptimizerPrograms, UpdateWholeVariablesAsTheCpu) {
  for (const GpuOptimizer& optimizer : GpuOptimizers()) {
    if (optimizer.by_rows || !absl::StartsWith(optimizer.op, "Resource")) continue;
    if (!absl::c_linear_search(optimizer.types, GetParam())) continue;
    SCOPED_TRACE(optimizer.op);
    UpdateCase c = Updated(optimizer, GetParam(), Shape({37}), Tensor());
    HostProgram program(optimizer.program.Text(GetParam()), {OptimizerProgram::kKernel});
    ASSERT_TRUE(program.ok());
    std::vector<const void*> addresses = ScalarsOf(optimizer, c);
    for (const Tensor& value : c.values) addresses.push_back(value.raw_data());
    addresses.push_back(c.grad.raw_data());
    std::vector<Tensor> got;
    for (const Tensor& value : c.values) got.emplace_back(value.dtype(), value.shape());
    for (Tensor& value : got) addresses.push_back(value.raw_data());
    int64_t n = 37;
    std::vector<void*> arguments = {&n, &c.flag};
    for (const void*& address : addresses) arguments.push_back(&address);
    LaunchElements(program, OptimizerProgram::kKernel, arguments);
    ASSERT_EQ(c.want.size(), got.size());
    for (size_t i = 0; i < got.size(); ++i) ExpectNear(got[i], c.want[i]);
  }
}

TEST_P(OptimizerPrograms, UpdateRowsAsTheCpuInTheOrderOfTheIndices) {
  Tensor indices = Tensor::Of<int32_t>({7}, {3, 0, 3, 5, 0, 3, 1});
  int by_rows = 0;
  for (const GpuOptimizer& optimizer : GpuOptimizers()) {
    if (!optimizer.by_rows || !absl::StartsWith(optimizer.op, "Resource")) continue;
    if (!absl::c_linear_search(optimizer.types, GetParam())) continue;
    ++by_rows;
    SCOPED_TRACE(optimizer.op);
    UpdateCase c = Updated(optimizer, GetParam(), Shape({6, 5}), indices);
    std::vector<uint64_t> slots;
    for (int64_t i = 0; i < 7; ++i) slots.push_back(static_cast<uint64_t>(indices.data<int32_t>()[i]) << 32 | i);
    std::sort(slots.begin(), slots.end());
    // An index out of range does nothing.
    slots.push_back(0xffffffff00000000 | 2);
    HostProgram program(optimizer.program.RowsText(GetParam()), {OptimizerProgram::kRowsKernel});
    ASSERT_TRUE(program.ok());
    std::vector<const void*> addresses = {slots.data()};
    for (const void* scalar : ScalarsOf(optimizer, c)) addresses.push_back(scalar);
    addresses.push_back(c.grad.raw_data());
    std::vector<Tensor> got;
    for (const Tensor& value : c.values) got.push_back(value.Clone());
    for (Tensor& value : got) addresses.push_back(value.raw_data());
    int64_t n = 8, columns = 5;
    std::vector<void*> arguments = {&n, &columns, &c.flag};
    for (const void*& address : addresses) arguments.push_back(&address);
    LaunchRows(program, OptimizerProgram::kRowsKernel, arguments);
    ASSERT_EQ(c.want.size(), got.size());
    for (size_t i = 0; i < got.size(); ++i) ExpectSame(got[i], c.want[i]);
  }
  EXPECT_GE(by_rows, 9);
}

INSTANTIATE_TEST_SUITE_P(Types, OptimizerPrograms, ::testing::Values(DType::kFloat, DType::kBFloat16),
                         [](const auto& info) { return DTypeName(info.param); });

}  // namespace
}  // namespace millrace
