#include <thread>

#include "millrace/base/thread_handover.h"
#include "millrace/device/cpu/cpu_device.h"
#include "millrace/executor/plan.h"
#include "millrace/executor/step_arena.h"
#include "tests/ops/run_op.h"

namespace millrace {
namespace {

Tensor NaiveProduct(const Tensor& a, const Tensor& b) {
  Tensor c(DType::kFloat, Shape({a.dim(0), b.dim(1)}));
  for (int64_t i = 0; i < a.dim(0); ++i) {
    for (int64_t j = 0; j < b.dim(1); ++j) {
      double sum = 0;
      for (int64_t p = 0; p < a.dim(1); ++p) {
        sum += static_cast<double>(a.data<float>()[i * a.dim(1) + p]) * b.data<float>()[p * b.dim(1) + j];
      }
      c.data<float>()[i * b.dim(1) + j] = static_cast<float>(sum);
    }
  }
  return c;
}

TEST(MatMulTest, MultipliesMatricesOnAnyNumberOfThreads) {
  const Tensor a = Noise(Shape({130, 300})), b = Noise(Shape({300, 70}), 2);
  const auto out = RunOnAllThreads("MatMul", {a, b});
  ASSERT_EQ(out.size(), 1);
  ExpectNear(out[0], NaiveProduct(a, b), 1e-4f);
}

TEST(MatMulTest, IntegersWrapAround) {
  const auto out = RunOp(
      "MatMul", {Tensor::Of<int32_t>(Shape({1, 2}), {2147483647, 2}), Tensor::Of<int32_t>(Shape({2, 1}), {1, 1})});
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ((*out)[0].scalar<int32_t>(), std::numeric_limits<int32_t>::min() + 1);
}

TEST(MatMulTest, AProductOverNothingIsZero) {
  const auto out = RunOp("MatMul", {Tensor(DType::kFloat, Shape({2, 0})), Tensor(DType::kFloat, Shape({0, 3}))});
  ASSERT_TRUE(out.ok()) << out.status();
  ExpectNear((*out)[0], Tensor::Of<float>(Shape({2, 3}), {0, 0, 0, 0, 0, 0}), 0);
}

TEST(MatMulTest, ShapesThatDoNotFitAreNamed) {
  const Status status = RunOp("MatMul", {Noise(Shape({2, 3})), Noise(Shape({4, 5}))}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("[2,3]"), std::string::npos) << status;
  EXPECT_NE(status.message().find("[4,5]"), std::string::npos) << status;
  EXPECT_EQ(RunOp("MatMul", {Noise(Shape({2})), Noise(Shape({4, 5}))}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

// Whether what the thread had left for later went to the pool in the course of a product.
bool HandsOver(int64_t size) {
  auto graph = std::make_unique<Graph>();
  GraphBuilder b(graph.get());
  const Endpoint x = b.Op("Placeholder", {}, {{"dtype", DType::kFloat}}), product = b.Op("MatMul", {x, x});
  EXPECT_TRUE(b.ok()) << b.status();
  const std::shared_ptr<Device> device = NewCpuDevice({});
  PlanOptions options;
  options.feeds = {x};
  options.fetches = {product};
  options.device_of = [&](const Node&) { return device.get(); };
  StatusOr<std::unique_ptr<Plan>> plan = Plan::Compile(std::move(graph), options);
  EXPECT_TRUE(plan.ok()) << plan.status();
  ThreadPool pool("test", 1);
  EventThread thread(EventThread::Kind::kServes);
  const RefPtr<ThreadHandover> handover = MakeRef<ThreadHandover>();
  const ThreadHandover::Entry entry(handover, &thread);
  std::thread::id where;
  Notification ran;
  handover->RunNext(&pool, [&](EventThread*) {
    where = std::this_thread::get_id();
    ran.Notify();
  });
  const RefPtr<StepArena> arena = MakeRef<StepArena>();
  StepContext step;
  step.handover = handover.get();
  const Tensor feed = Noise(Shape({size, size}));
  Tensor result;
  EXPECT_EQ((*plan)->Run({.step = &step, .feeds = absl::MakeConstSpan(&feed, 1), .allocator = arena.get()},
                         absl::MakeSpan(&result, 1)),
            absl::OkStatus());
  thread.RunLeft();
  ran.Wait();
  return where != std::this_thread::get_id();
}

TEST(MatMulTest, ALargeProductHandsOverAndASmallOneDoesNot) {
  EXPECT_TRUE(HandsOver(200));
  EXPECT_FALSE(HandsOver(20));
}

TEST(SlicedMatMulTest, GivesTheBoxOfTheProductWhateverIsTransposed) {
  for (const auto& [m, n, k] : {std::tuple{5, 9, 3}, {40, 300, 70}, {16, 256, 128}}) {
    for (int flags = 0; flags < 4; ++flags) {
      const bool ta = (flags & 1) != 0, tb = (flags & 2) != 0;
      const AttrList transposed = {{"transpose_a", ta}, {"transpose_b", tb}};
      const Tensor a = Noise(ta ? Shape({k, m}) : Shape({m, k})), b = Noise(tb ? Shape({n, k}) : Shape({k, n}), 2);
      const Tensor begin = Tensor::FromVector<int32_t>({2, n / 2}), size = Tensor::FromVector<int32_t>({m - 3, -1});
      const auto product = RunOp("MatMul", {a, b}, transposed);
      ASSERT_TRUE(product.ok()) << product.status();
      const auto box = RunOp("Slice", {(*product)[0], begin, size});
      ASSERT_TRUE(box.ok()) << box.status();
      const auto fused = RunOnAllThreads("_SlicedMatMul", {a, b, begin, size}, transposed);
      ASSERT_EQ(fused.size(), 1);
      ExpectNear(fused[0], (*box)[0], 1e-4f);
    }
  }
}

TEST(SlicedMatMulTest, BoxesOutsideTheProductAreErrors) {
  const Tensor a = Noise(Shape({4, 3})), b = Noise(Shape({3, 5}));
  const auto slice = [&](std::vector<int64_t> begin, std::vector<int64_t> size) {
    return RunOp("_SlicedMatMul", {a, b, Tensor::FromVector(begin), Tensor::FromVector(size)}).status();
  };
  EXPECT_TRUE(slice({4, 5}, {0, 0}).ok());
  EXPECT_EQ(slice({0, 6}, {1, -1}).message().find("begin[1]") == std::string::npos, false);
  for (const Status& status : {slice({0, -1}, {1, 1}), slice({0, 0}, {5, 1}), slice({0, 0}, {1, -2}), slice({0}, {1}),
                               slice({0, INT64_MAX}, {1, 1}), slice({0, 1}, {1, INT64_MAX})}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  }
}

TEST(BatchMatMulTest, BatchesBroadcast) {
  const Tensor x = Noise(Shape({3, 1, 4, 5})), y = Noise(Shape({2, 5, 6}), 2);
  const auto out = RunOnAllThreads("BatchMatMulV2", {x, y});
  ASSERT_EQ(out.size(), 1);
  ASSERT_EQ(out[0].shape(), Shape({3, 2, 4, 6}));
  for (int64_t i = 0; i < 3; ++i) {
    for (int64_t j = 0; j < 2; ++j) {
      ExpectNear(out[0].Row(i).Row(j), NaiveProduct(x.Row(i).Row(0), y.Row(j)), 1e-5f);
    }
  }
  EXPECT_EQ(RunOp("BatchMatMul", {x, y}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(RunOp("BatchMatMulV2", {x, Noise(Shape({7, 5, 6}))}).ok(), true);
  EXPECT_EQ(RunOp("BatchMatMulV2", {Noise(Shape({3, 4, 5})), Noise(Shape({7, 5, 6}))}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(BatchMatMulTest, TheAdjointConjugates) {
  using C = std::complex<float>;
  const Tensor x = Tensor::Of<C>(Shape({1, 1}), {C(1, 2)}), y = Tensor::Of<C>(Shape({1, 1}), {C(3, -1)});
  const auto out = RunOp("BatchMatMulV2", {x, y}, {{"adj_x", true}});
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ((*out)[0].scalar<C>(), std::conj(C(1, 2)) * C(3, -1));
}

TEST(FusedMatMulTest, IsTheProductTheBiasAndTheActivation) {
  const Tensor a = Noise(Shape({50, 60})), b = Noise(Shape({60, 40}), 2), bias = Noise(Shape({40}), 3);
  const auto product = RunOp("MatMul", {a, b});
  ASSERT_TRUE(product.ok());
  const auto added = RunOp("BiasAdd", {(*product)[0], bias});
  ASSERT_TRUE(added.ok());
  for (const char* name : {"Relu", "Relu6", "Elu", "LeakyRelu", "Tanh", "Sigmoid"}) {
    const auto want = RunOp(name, {(*added)[0]});
    ASSERT_TRUE(want.ok()) << want.status();
    const auto got = RunOnAllThreads("_FusedMatMul", {a, b, bias},
                                     {{"num_args", 1}, {"fused_ops", std::vector<std::string>{"BiasAdd", name}}});
    ASSERT_EQ(got.size(), 1);
    ExpectNear(got[0], (*want)[0], 1e-6f);
  }
}

}  // namespace
}  // namespace millrace
