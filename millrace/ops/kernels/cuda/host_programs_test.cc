// The text of GPUs' programs, run on the host, gives what the CPU's kernels give.
#include <cmath>
#include <map>
#include <memory>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "millrace/graph/graph_builder.h"
#include "millrace/ops/kernels/cuda/cpu_results_testing.h"
#include "millrace/ops/kernels/cuda/elementwise_ops.h"
#include "millrace/ops/kernels/cuda/host_programs_testing.h"
#include "millrace/ops/kernels/cuda/reduction_ops.h"
#include "millrace/ops/nn/cuda/row_program.h"
#include "millrace/session/session.h"

namespace millrace {
namespace {

struct ReductionCase {
  std::vector<int64_t> shape;
  std::vector<int32_t> axes;
};

TEST(HostPrograms, ReductionsAgreeWithTheCpu) {
  const std::vector<ReductionCase> cases = {
      {{7}, {0}},          {{5, 33}, {1}},      {{33, 5}, {0}},         {{3, 1500}, {1}},
      {{40000}, {0}},      {{9000, 70}, {0}},   {{4, 3, 5, 7}, {1, 3}}, {{4, 3, 5, 7}, {0, 2}},
      {{2, 9001, 3}, {1}}, {{1, 6, 1}, {1, 2}}, {{3, 0}, {1}},          {{0, 3}, {1}}};
  for (const ReductionOp& op : ReductionOps()) {
    if (op.name == "BiasAddGrad" || op.name == "L2Loss") continue;
    for (const DType dtype :
         {DType::kFloat, DType::kHalf, DType::kDouble, DType::kInt8, DType::kInt64, DType::kComplex64, DType::kBool}) {
      if (op.attr == nullptr ? dtype != DType::kBool : !absl::c_linear_search(op.types, dtype)) continue;
      HostProgram program(op.program.Text(dtype),
                          {ReductionProgram::kWhole, ReductionProgram::kPieces, ReductionProgram::kJoin});
      ASSERT_TRUE(program.ok()) << op.name;
      for (const ReductionCase& c : cases) {
        SCOPED_TRACE(absl::StrCat(op.name, " of ", DTypeName(dtype), Shape(c.shape).ToString()));
        const Tensor x = Noise(dtype, Shape(c.shape), 7);
        Tensor axes(DType::kInt32, Shape({static_cast<int64_t>(c.axes.size())}));
        absl::c_copy(c.axes, axes.data<int32_t>());
        const Tensor want = OnCpu(op.name, {x, axes}, {})[0];
        ReduceAxes runs;
        ASSERT_TRUE(runs.Init(x.shape(), axes, false).ok());
        Tensor got(dtype, runs.output);
        ReductionPlan plan = ReductionPlan::Of(runs.runs).value();
        const void* from = x.raw_data();
        void* to = got.raw_data();
        if (got.num_elements() == 0) continue;
        const auto launch = [&](const char* kernel, ReductionPlan::Launch& part, std::vector<void*> arguments) {
          program.Launch(kernel, {part.blocks[0], part.blocks[1]}, {part.threads[0], part.threads[1]}, arguments);
        };
        if (plan.pieces() == 1) {
          launch(ReductionProgram::kWhole, plan.first, {&plan.first.reduction, &from, &to});
        } else {
          std::vector<std::complex<double>> partial(got.num_elements() * plan.pieces());
          void* accumulators = partial.data();
          launch(ReductionProgram::kPieces, plan.first, {&plan.first.reduction, &from, &accumulators});
          launch(ReductionProgram::kJoin, plan.join,
                 {&plan.join.reduction, &plan.first.reduction.count, &accumulators, &to});
        }
        ExpectNear(got, want);
      }
    }
  }
}

TEST(HostPrograms, ALongReductionIsInPieces) {
  const ReduceAxes::Run all = {100000, true};
  EXPECT_GT(ReductionPlan::Of(absl::MakeConstSpan(&all, 1))->pieces(), 1);
  const ReduceAxes::Run rows[] = {{100000, false}, {100, true}};
  EXPECT_EQ(ReductionPlan::Of(rows)->pieces(), 1);
}

TEST(HostPrograms, L2LossIsHalfTheSumOfSquares) {
  for (const ReductionOp& op : ReductionOps()) {
    if (op.name != "L2Loss") continue;
    HostProgram program(op.program.Text(DType::kFloat), {ReductionProgram::kWhole});
    ASSERT_TRUE(program.ok());
    const Tensor x = Noise(DType::kFloat, Shape({100}), 3);
    const ReduceAxes::Run all = {100, true};
    ReductionPlan plan = ReductionPlan::Of(absl::MakeConstSpan(&all, 1)).value();
    Tensor got(DType::kFloat, Shape());
    const void* from = x.raw_data();
    void* to = got.raw_data();
    program.Launch(ReductionProgram::kWhole, {1, 1}, {plan.first.threads[0], plan.first.threads[1]},
                   {&plan.first.reduction, &from, &to});
    ExpectNear(got, OnCpu("L2Loss", {x}, {})[0]);
  }
}

TEST(HostPrograms, RowsAgreeWithTheCpu) {
  std::map<std::string, std::unique_ptr<HostProgram>> programs;  // compiled once for all shapes
  const auto launch = [&](const RowProgram& row, const std::vector<unsigned>& blocks,
                          const std::vector<unsigned>& threads, std::vector<void*> arguments) {
    std::unique_ptr<HostProgram>& program = programs[row.Text()];
    if (program == nullptr) {
      program = std::make_unique<HostProgram>(row.Text(), std::vector<std::string>{RowProgram::kKernel});
    }
    ASSERT_TRUE(program->ok());
    program->Launch(RowProgram::kKernel, blocks, threads, std::move(arguments));
  };
  for (const DType dtype : {DType::kFloat, DType::kBFloat16, DType::kDouble}) {
    for (const auto& [rows, width] : {std::pair<int64_t, int64_t>(1, 1), {13, 10}, {3, 100}, {2, 3000}}) {
      const std::vector<unsigned> threads = width > 1024 ? std::vector<unsigned>{256, 1} : std::vector<unsigned>{32, 8};
      const std::vector<unsigned> blocks = {static_cast<unsigned>((rows + threads[1] - 1) / threads[1]), 1};
      const Tensor x = Noise(dtype, Shape({rows, width}), 5), labels = Noise(dtype, Shape({1, width}), 6);
      int64_t n = rows, w = width;
      const void* from = x.raw_data();
      for (const char* op : {"Softmax", "LogSoftmax"}) {
        SCOPED_TRACE(absl::StrCat(op, " of ", DTypeName(dtype), x.shape().ToString()));
        Tensor got(dtype, x.shape());
        void* to = got.raw_data();
        launch({.op = op, .dtype = dtype}, blocks, threads, {&n, &w, &from, &to});
        ExpectNear(got, OnCpu(op, {x}, {})[0]);
      }
      {
        SCOPED_TRACE(absl::StrCat("cross entropy of ", DTypeName(dtype), x.shape().ToString()));
        const RowProgram dense{.op = "SoftmaxCrossEntropyWithLogits", .dtype = dtype};
        // The labels are one row for all.
        RowSteps steps = {width, 1, 0, 1};
        Tensor loss(dtype, Shape({rows})), backprop(dtype, x.shape());
        const void* wanted = labels.raw_data();
        void *to_loss = loss.raw_data(), *to_backprop = backprop.raw_data();
        launch(dense, blocks, threads, {&n, &w, &steps, &from, &wanted, &to_loss, &to_backprop});
        const std::vector<Tensor> want = OnCpu("SoftmaxCrossEntropyWithLogits", {x, labels}, {}, 2);
        ExpectNear(loss, want[0]);
        ExpectNear(backprop, want[1]);
      }
      {
        SCOPED_TRACE(absl::StrCat("sparse cross entropy of ", DTypeName(dtype), x.shape().ToString()));
        const RowProgram sparse{.op = "SparseSoftmaxCrossEntropyWithLogits", .dtype = dtype, .classes = DType::kInt32};
        Tensor classes(DType::kInt32, Shape({rows}));
        for (int64_t i = 0; i < rows; ++i) classes.data<int32_t>()[i] = static_cast<int32_t>(i * 3 % width);
        const std::vector<Tensor> want = OnCpu("SparseSoftmaxCrossEntropyWithLogits", {x, classes}, {}, 2);
        Tensor loss(dtype, Shape({rows})), backprop(dtype, x.shape());
        const void* which = classes.raw_data();
        void *to_loss = loss.raw_data(), *to_backprop = backprop.raw_data();
        launch(sparse, blocks, threads, {&n, &w, &from, &which, &to_loss, &to_backprop});
        ExpectNear(loss, want[0]);
        ExpectNear(backprop, want[1]);
        // A class that is not there makes its row NaN, and no other.
        classes.data<int32_t>()[0] = static_cast<int32_t>(width);
        launch(sparse, blocks, threads, {&n, &w, &from, &which, &to_loss, &to_backprop});
        EXPECT_TRUE(std::isnan(At(loss, 0)) && std::isnan(At(backprop, 0)));
        if (rows > 1) {
          EXPECT_EQ(At(loss, 1), At(want[0], 1));
        }
      }
    }
  }
}

TEST(HostPrograms, CastsAgreeWithTheCpu) {
  for (const DType from : {DType::kFloat, DType::kHalf, DType::kBool, DType::kInt8, DType::kInt64}) {
    for (const DType to :
         {DType::kFloat, DType::kBFloat16, DType::kHalf, DType::kDouble, DType::kBool, DType::kInt64}) {
      SCOPED_TRACE(absl::StrCat(DTypeName(from), " to ", DTypeName(to)));
      const ElementwiseProgram cast{.functor = "IdentityFn", .arity = 1, .inputs = {from}, .output = to};
      HostProgram program(cast.Text(), {ElementwiseProgram::kKernel});
      ASSERT_TRUE(program.ok());
      const Tensor x = Noise(from, Shape({50}), 11);
      Tensor got(to, x.shape());
      int64_t n = 50;
      int moves = 1;
      const void* in = x.raw_data();
      void* out = got.raw_data();
      program.Launch(ElementwiseProgram::kKernel, {1}, {64}, {&n, &in, &moves, &out});
      ExpectNear(got, OnCpu("Cast", {x}, {{"DstT", to}})[0]);
    }
  }
}

}  // namespace
}  // namespace millrace
