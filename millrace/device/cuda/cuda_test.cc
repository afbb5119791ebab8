// A GPU through the session, as a user has it. Skipped where there is none.
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "millrace/base/mutex.h"
#include "millrace/device/cuda/cuda_device.h"
#include "millrace/device/cuda/gpu_math.h"
#include "millrace/device/cuda_devices.h"
#include "millrace/graph/graph_builder.h"
#include "millrace/graph/graph_def.h"
#include "millrace/session/session.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;

// A graph of which each part is on the device that b_.device names, and a session over it.
class CudaTest : public ::testing::Test {
 protected:
  CudaTest() : b_(&graph_) {}

  void SetUp() override {
    setenv("MILLRACE_TF32", "0", 1);  // the CPU's precision
    if (CudaDeviceCount() == 0) GTEST_SKIP() << "there is no GPU here: " << WhyNoCudaDevices();
    gpu_ = Gpu::Get(0, {}).value();
  }

  Session* Open(const SessionOptions& options = {}) {
    EXPECT_TRUE(b_.ok()) << b_.status();
    session_ = Session::Create(options).value();
    EXPECT_TRUE(session_->Extend(graph_).ok());
    return session_.get();
  }
  Endpoint Placeholder(const std::string& name, DType dtype = DType::kFloat) {
    return b_.Op("Placeholder", {}, {{"dtype", dtype}, {"shape", PartialShape()}}, name);
  }
  Endpoint Variable(const std::string& name, const Shape& shape, DType dtype = DType::kFloat) {
    return b_.Op("VarHandleOp", {}, {{"dtype", dtype}, {"shape", PartialShape(shape)}, {"shared_name", name}}, name);
  }
  static Tensor Count(const Shape& shape, float from = 0, float step = 1) {
    Tensor t(DType::kFloat, shape);
    for (int64_t i = 0; i < t.num_elements(); ++i) t.data<float>()[i] = from + step * static_cast<float>(i);
    return t;
  }
  static Tensor Wave(const Shape& shape, float phase) {
    Tensor t(DType::kFloat, shape);
    for (int64_t i = 0; i < t.num_elements(); ++i) {
      t.data<float>()[i] = std::sin(phase + 0.37f * static_cast<float>(i % 9973));
    }
    return t;
  }
  // Independent of each other, in [-1, 1).
  static Tensor Noise(const Shape& shape) {
    Tensor t(DType::kFloat, shape);
    uint32_t state = 1;
    for (int64_t i = 0; i < t.num_elements(); ++i) {
      state = state * 1664525u + 1013904223u;
      t.data<float>()[i] = static_cast<float>(state >> 8) / (1 << 23) - 1;
    }
    return t;
  }
  static void ExpectNear(const Tensor& a, const Tensor& b, float tolerance) {
    ASSERT_EQ(a.shape(), b.shape());
    ASSERT_EQ(a.dtype(), b.dtype());
    float worst = 0;
    for (int64_t i = 0; i < a.num_elements(); ++i) {
      worst = std::max(worst, std::fabs(a.data<float>()[i] - b.data<float>()[i]));
    }
    EXPECT_LE(worst, tolerance);
  }
  static void ExpectSameBytes(const Tensor& a, const Tensor& b) {
    ASSERT_EQ(a.shape(), b.shape());
    ASSERT_EQ(a.dtype(), b.dtype());
    EXPECT_EQ(std::memcmp(a.raw_data(), b.raw_data(), a.TotalBytes()), 0);
  }

  static constexpr char kGpu[] = "/device:GPU:0";
  Graph graph_;
  GraphBuilder b_;
  Gpu* gpu_ = nullptr;
  std::unique_ptr<Session> session_;
};

// Needs no GPU: without one there is a reason.
TEST(CudaDevices, ThereAreSomeOrAReasonWhyNot) {
  EXPECT_EQ(CudaDeviceCount() == 0, !WhyNoCudaDevices().empty());
  EXPECT_THAT(WhyNoCudaDevices(), testing::Not(HasSubstr("libmillrace_cuda.so")));
}

// Needs no GPU, but CUDA's libraries; every function that is used is in them.
TEST(CudaDevices, CublasIsOpenedOrNamed) {
  const Status status = Cublas::Get().status();
  if (status.ok()) return;
  EXPECT_THAT(std::string(status.message()), testing::StartsWith("cannot open libcublas.so.13"));
}

TEST(CudaDevices, CudnnIsOpenedOrNamed) {
  const Status status = Cudnn::Get().status();
  if (status.ok()) return;
  EXPECT_THAT(std::string(status.message()), testing::StartsWith("cannot open libcudnn.so.9"));
}

TEST(GpuMath, TheEnvironmentTurnsTf32Off) {
  const auto with = [](const char* variable, const char* value) {
    const char* const before = std::getenv(variable);
    const std::string kept = before == nullptr ? "" : before;
    setenv(variable, value, 1);
    const GpuMath math = GpuMath::FromEnvironment();
    before == nullptr ? unsetenv(variable) : setenv(variable, kept.c_str(), 1);
    return math;
  };
  EXPECT_FALSE(with("NVIDIA_TF32_OVERRIDE", "0").tf32);
  EXPECT_FALSE(with("MILLRACE_TF32", "0").tf32);
  EXPECT_TRUE(with("MILLRACE_TF32", "0").deterministic);
  EXPECT_FALSE(with("MILLRACE_CUDNN_DETERMINISTIC", "0").deterministic);
  if (std::getenv("NVIDIA_TF32_OVERRIDE") == nullptr) {
    EXPECT_TRUE(with("MILLRACE_TF32", "1").tf32);
  }
}

TEST_F(CudaTest, SessionListsTheGpuAndAnOptionHidesIt) {
  EXPECT_EQ(Session::Create({}).value()->ListDevices().size(), 1u + CudaDeviceCount());
  EXPECT_EQ(Session::Create({.gpu_devices = 0}).value()->ListDevices().size(), 1u);
  EXPECT_EQ(Session::Create({}).value()->ListDevices()[1]->type(), "GPU");
}

TEST_F(CudaTest, CopiesComeBackUnchangedWhateverTheirSize) {
  for (int64_t n : {0, 1, 3, 1000, 1 << 20, (9 << 20) + 5}) {
    const Tensor sent = Wave(Shape({n}), 0.5f);
    StatusOr<Tensor> there = gpu_->CopyIn(sent);
    ASSERT_TRUE(there.ok()) << there.status();
    EXPECT_TRUE(IsDeviceMemory(*there));
    // From pinned memory, as the answer is, and from the heap.
    for (int round = 0; round < 2; ++round) {
      Notification done;
      StatusOr<Tensor> back;
      gpu_->CopyOut(*there, [&](StatusOr<Tensor> result) {
        back = std::move(result);
        done.Notify();
      });
      done.Wait();
      ASSERT_TRUE(back.ok()) << back.status();
      EXPECT_FALSE(IsDeviceMemory(*back));
      ExpectSameBytes(sent, *back);
      there = gpu_->CopyIn(*back);
      ASSERT_TRUE(there.ok()) << there.status();
    }
  }
}

TEST_F(CudaTest, StringsStayOnTheHost) {
  EXPECT_EQ(gpu_->CopyIn(Tensor::Scalar("text")).status().code(), absl::StatusCode::kUnimplemented);
  b_.device = kGpu;
  const Endpoint x = b_.Op("Identity", {b_.Const(Tensor::Scalar("text"))}, {}, "x");
  const auto result = Open()->Run({x.name()});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ((*result)[0].scalar<std::string>(), "text");
}

// Each copy out must see exactly what was enqueued before it, and each addition the copy in before it.
TEST_F(CudaTest, WorkOnThreeStreamsIsInOrder) {
  b_.device = kGpu;
  const Endpoint x = Placeholder("x");
  const Endpoint sum = b_.Op("AddV2", {b_.Op("AddV2", {x, x}), x}, {}, "sum");
  Session* const session = Open();
  auto step = session->MakeCallable({.feeds = {"x"}, .fetches = {sum.name()}}).value();
  for (int i = 0; i < 200; ++i) {
    const Tensor value = Count(Shape({1 + (i * 7919) % 300000}), static_cast<float>(i));
    std::vector<Tensor> result;
    const Status status = step->Run({value}, &result);
    ASSERT_TRUE(status.ok()) << status;
    for (int64_t k : {int64_t{0}, value.num_elements() / 2, value.num_elements() - 1}) {
      ASSERT_EQ(result[0].data<float>()[k], 3 * value.data<float>()[k]) << "step " << i << " element " << k;
    }
  }
}

// The copy out is asked for long before the products are done.
TEST_F(CudaTest, ACopyOutComesAfterTheKernelsBeforeIt) {
  constexpr int64_t kSize = 1024;
  Tensor identity = Count(Shape({kSize, kSize}), 0, 0);
  for (int64_t i = 0; i < kSize; ++i) identity.data<float>()[i * (kSize + 1)] = 1;
  b_.device = kGpu;
  const Endpoint x = Placeholder("x");
  const Endpoint one = b_.Const(identity);
  Endpoint last = x;
  for (int i = 0; i < 40; ++i) last = b_.Op("MatMul", {last, one});
  auto step = Open()->MakeCallable({.feeds = {"x"}, .fetches = {last.name()}}).value();
  for (int i = 1; i <= 10; ++i) {
    const Tensor value = Count(Shape({kSize, kSize}), static_cast<float>(i), 0);
    std::vector<Tensor> result;
    const Status status = step->Run({value}, &result);
    ASSERT_TRUE(status.ok()) << status;
    ExpectSameBytes(result[0], value);
  }
}

TEST_F(CudaTest, ElementwiseOpsGiveTheBytesOfTheCpu) {
  const std::vector<std::pair<Shape, Shape>> shapes = {
      {Shape({1000}), Shape({1000})},          {Shape({}), Shape({17, 3})},
      {Shape({64, 33}), Shape({33})},          {Shape({64, 1}), Shape({1, 33})},
      {Shape({5, 1, 7, 1}), Shape({4, 1, 3})}, {Shape({0, 3}), Shape({3})}};
  const DType types[] = {DType::kFloat, DType::kDouble, DType::kHalf,  DType::kBFloat16, DType::kInt32,
                         DType::kInt64, DType::kInt8,   DType::kUInt8, DType::kInt16};
  std::vector<std::string> on_gpu, on_cpu;
  for (size_t s = 0; s < shapes.size(); ++s) {
    for (const DType type : types) {
      for (const char* op : {"AddV2", "Sub", "Mul"}) {
        for (const char* device : {kGpu, "/device:CPU:0"}) {
          b_.device = "/device:CPU:0";
          // Not foldable: fed.
          const Endpoint a = b_.Cast(Placeholder(absl::StrCat("a", graph_.max_id())), type);
          const Endpoint b = b_.Cast(Placeholder(absl::StrCat("b", graph_.max_id())), type);
          b_.device = device;
          const Endpoint r = b_.Op(op, {a, b});
          ASSERT_TRUE(b_.ok()) << b_.status();
          (device == kGpu ? on_gpu : on_cpu).push_back(r.name());
        }
      }
    }
  }
  Session* const session = Open();
  std::vector<Feed> feeds;
  const size_t per_shape = std::size(types) * 3 * 2;
  size_t seen = 0;
  for (const Node* node : graph_.nodes()) {
    if (!node->is_type("Placeholder")) continue;
    const auto& [a, b] = shapes[seen / 2 / per_shape];
    feeds.emplace_back(node->name(), seen % 2 == 0 ? Count(a, 1, 0.25f) : Count(b, 2, 0.5f));
    ++seen;
  }
  const auto gpu = session->Run(feeds, on_gpu);
  const auto cpu = session->Run(feeds, on_cpu);
  ASSERT_TRUE(gpu.ok()) << gpu.status();
  ASSERT_TRUE(cpu.ok()) << cpu.status();
  for (size_t i = 0; i < gpu->size(); ++i) {
    SCOPED_TRACE(on_gpu[i]);
    ExpectSameBytes((*gpu)[i], (*cpu)[i]);
  }
}

TEST_F(CudaTest, MatMulAgreesWithTheCpu) {
  struct Case {
    int64_t m, n, k;
    bool ta, tb;
  };
  for (const Case& c : {Case{1, 1, 1, false, false}, Case{64, 32, 48, false, false}, Case{33, 17, 65, true, false},
                        Case{7, 129, 40, false, true}, Case{20, 30, 10, true, true}, Case{4, 5, 0, false, false},
                        Case{0, 5, 3, false, false}, Case{512, 256, 300, false, false}}) {
    const Tensor a = Wave(c.ta ? Shape({c.k, c.m}) : Shape({c.m, c.k}), 0.1f);
    const Tensor b = Wave(c.tb ? Shape({c.n, c.k}) : Shape({c.k, c.n}), 0.7f);
    for (const DType type : {DType::kFloat, DType::kDouble, DType::kHalf, DType::kBFloat16}) {
      Graph graph;
      GraphBuilder builder(&graph);
      std::vector<std::string> fetches;
      for (const char* device : {kGpu, "/device:CPU:0"}) {
        builder.device = "/device:CPU:0";
        const Endpoint x = builder.Cast(builder.Op("Placeholder", {}, {{"dtype", DType::kFloat}}, "x"), type);
        const Endpoint y = builder.Cast(builder.Op("Placeholder", {}, {{"dtype", DType::kFloat}}, "y"), type);
        builder.device = device;
        const Endpoint product = builder.Op("MatMul", {x, y}, {{"transpose_a", c.ta}, {"transpose_b", c.tb}});
        builder.device = "/device:CPU:0";
        fetches.push_back(builder.Cast(product, DType::kFloat).name());
      }
      ASSERT_TRUE(builder.ok()) << builder.status();
      auto session = Session::Create().value();
      ASSERT_TRUE(session->Extend(graph).ok());
      const auto result = session->Run({{"x", a}, {"y", b}, {"x_1", a}, {"y_1", b}}, fetches);
      ASSERT_TRUE(result.ok()) << result.status();
      const float scale = type == DType::kHalf ? 2e-2f : type == DType::kBFloat16 ? 2e-1f : 1e-4f;
      ExpectNear((*result)[0], (*result)[1], scale);
    }
  }
}

// A bias after a product is fused on the CPU only.
TEST_F(CudaTest, ProductWithBiasStaysInPieces) {
  const Tensor x = Wave(Shape({8, 4}), 0.2f), w = Wave(Shape({4, 3}), 0.3f), bias = Count(Shape({3}));
  std::vector<Tensor> results[2];
  int i = 0;
  for (const char* device : {kGpu, "/device:CPU:0"}) {
    Graph graph;
    GraphBuilder b(&graph);
    b.device = device;
    const Endpoint p = b.Op("Placeholder", {}, {{"dtype", DType::kFloat}, {"shape", PartialShape({8, 4})}}, "x");
    b.Op("AddV2", {b.Op("MatMul", {p, b.Const(w)}), b.Const(bias)}, {}, "y");
    auto session = Session::Create().value();
    ASSERT_TRUE(session->Extend(graph).ok());
    auto result = session->Run({{"x", x}}, {"y"});
    ASSERT_TRUE(result.ok()) << result.status();
    results[i++] = *std::move(result);
  }
  ExpectNear(results[0][0], results[1][0], 1e-5f);
}

TEST_F(CudaTest, ShapesAreMadeAndReadByTheHost) {
  b_.device = kGpu;
  const Endpoint x = Placeholder("x");
  const Endpoint y = Placeholder("y");
  b_.Op("Reshape", {b_.Op("AddV2", {x, x}), b_.Op("Shape", {y})}, {}, "z");
  const auto result = Open()->Run({{"x", Count(Shape({6}))}, {"y", Count(Shape({2, 3}))}}, {"z"});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ((*result)[0].shape(), Shape({2, 3}));
  EXPECT_EQ((*result)[0].data<float>()[5], 10);
}

TEST_F(CudaTest, VariableLivesOnTheGpuAndReadersKeepTheirValue) {
  b_.device = kGpu;
  const Endpoint v = Variable("v", Shape({1000}));
  const Node* init = b_.AddNode("AssignVariableOp", {v, b_.Const(Count(Shape({1000})))}, {}, "init");
  const Node* add = b_.AddNode("AssignAddVariableOp", {v, b_.Const(Count(Shape({1000}), 1, 0))}, {}, "add");
  const Node* sub = b_.AddNode("AssignSubVariableOp", {v, b_.Const(Count(Shape({1000}), 3, 0))}, {}, "sub");
  const Endpoint read = b_.Op("ReadVariableOp", {v}, {{"dtype", DType::kFloat}}, "read");
  const Endpoint known = b_.Op("VarIsInitializedOp", {v}, {}, "known");
  const Endpoint shape = b_.Op("VariableShape", {v}, {}, "shape");
  Session* const session = Open();
  EXPECT_FALSE(session->Run({known.name()}).value()[0].scalar<bool>());
  EXPECT_EQ(session->Run({read.name()}).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(session->RunTargets({add->name()}).code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(session->RunTargets({init->name()}).ok());
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(session->RunTargets({add->name()}).ok());
  ASSERT_TRUE(session->RunTargets({sub->name()}).ok());
  const auto result = session->Run({read.name(), shape.name()});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ((*result)[0].data<float>()[999], 999 + 10 - 3);
  EXPECT_EQ((*result)[1].data<int32_t>()[0], 1000);
  // A constant that became a variable's value is not changed with it.
  ASSERT_TRUE(session->RunTargets({init->name()}).ok());
  EXPECT_EQ(session->Run({read.name()}).value()[0].data<float>()[999], 999);
}

// A variable of the same name on the CPU is another one.
TEST_F(CudaTest, DevicesDoNotShareVariables) {
  for (const char* device : {kGpu, "/device:CPU:0"}) {
    b_.device = device;
    const Endpoint v = Variable("v", Shape({}));
    b_.AddNode("AssignVariableOp", {v, b_.Const(Tensor::Scalar(device == kGpu ? 1.0f : 2.0f))}, {}, "init");
    b_.Op("ReadVariableOp", {v}, {{"dtype", DType::kFloat}}, "read");
  }
  Session* const session = Open();
  ASSERT_TRUE(session->RunTargets({"init", "init_1"}).ok());
  const auto result = session->Run({"read", "read_1"});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ((*result)[0].scalar<float>(), 1);
  EXPECT_EQ((*result)[1].scalar<float>(), 2);
}

// The same steps on both devices, in the same order of operations but for the sums of the products.
TEST_F(CudaTest, LinearRegressionLearnsAsOnTheCpu) {
  constexpr int64_t kRows = 256, kColumns = 8;
  const Tensor inputs = Noise(Shape({kRows, kColumns}));
  const Tensor truth = Count(Shape({kColumns, 1}), -2, 0.5f);
  Tensor labels(DType::kFloat, Shape({kRows, 1}));
  for (int64_t i = 0; i < kRows; ++i) {
    labels.data<float>()[i] = 0;
    for (int64_t k = 0; k < kColumns; ++k) {
      labels.data<float>()[i] += inputs.data<float>()[i * kColumns + k] * truth.data<float>()[k];
    }
  }
  std::vector<Tensor> early, late;
  for (const char* device : {kGpu, "/device:CPU:0"}) {
    Graph graph;
    GraphBuilder b(&graph);
    b.device = device;
    const Endpoint x = b.Op("Placeholder", {}, {{"dtype", DType::kFloat}}, "x");
    const Endpoint y = b.Op("Placeholder", {}, {{"dtype", DType::kFloat}}, "y");
    const Endpoint w = b.Op("VarHandleOp", {}, {{"dtype", DType::kFloat}, {"shape", PartialShape({kColumns, 1})}}, "w");
    b.AddNode("AssignVariableOp", {w, b.Const(Count(Shape({kColumns, 1}), 0, 0))}, {}, "init");
    const Endpoint value = b.Op("ReadVariableOp", {w}, {{"dtype", DType::kFloat}}, "value");
    const Endpoint error = b.Sub(b.Op("MatMul", {x, value}), y);
    const Endpoint gradient =
        b.Mul(b.Op("MatMul", {x, error}, {{"transpose_a", true}}), b.Const(Tensor::Scalar(2.0f / kRows)));
    b.AddNode("ResourceApplyGradientDescent", {w, b.Const(Tensor::Scalar(0.3f)), gradient}, {}, "train");
    ASSERT_TRUE(b.ok()) << b.status();
    auto session = Session::Create().value();
    ASSERT_TRUE(session->Extend(graph).ok());
    ASSERT_TRUE(session->RunTargets({"init"}).ok());
    auto train = session->MakeCallable({.feeds = {"x", "y"}, .targets = {"train"}}).value();
    std::vector<Tensor> none;
    for (int i = 0; i < 200; ++i) {
      const Status status = train->Run({inputs, labels}, &none);
      ASSERT_TRUE(status.ok()) << status;
      if (i == 9) early.push_back(session->Run({"value"}).value()[0]);
    }
    late.push_back(session->Run({"value"}).value()[0]);
  }
  ExpectNear(early[0], early[1], 1e-5f);
  ExpectNear(late[0], truth, 1e-3f);
  ExpectNear(late[1], truth, 1e-3f);
}

TEST_F(CudaTest, ManyStepsAtOnceAreEachRight) {
  b_.device = kGpu;
  const Endpoint x = Placeholder("x");
  const Endpoint v = Variable("v", Shape({}));
  b_.AddNode("AssignVariableOp", {v, b_.Const(Tensor::Scalar(0.0f))}, {}, "init");
  Node* const count = b_.AddNode("AssignAddVariableOp", {v, b_.Const(Tensor::Scalar(1.0f))}, {}, "count");
  b_.Op("ReadVariableOp", {v}, {{"dtype", DType::kFloat}}, "total");
  const Endpoint y = b_.Op("MatMul", {x, x}, {{"transpose_b", true}}, "y");
  Session* const session = Open();
  ASSERT_TRUE(session->RunTargets({"init"}).ok());
  constexpr int kThreads = 8, kSteps = 200;
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kSteps; ++i) {
        const float value = static_cast<float>(t * kSteps + i) / 64;
        const auto result = session->Run({{"x", Count(Shape({3, 16}), value, 0)}}, {y.name()}, {count->name()});
        if (!result.ok() || std::fabs((*result)[0].data<float>()[8] - 16 * value * value) > 1e-2f) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0);
  EXPECT_EQ(session->Run({"total"}).value()[0].scalar<float>(), kThreads * kSteps);
}

TEST_F(CudaTest, NoMemoryIsAnErrorThatNamesTheDeviceAndTheNextStepRuns) {
  b_.device = kGpu;
  const Endpoint x = Placeholder("x");
  // 2^20 by 2^20 floats: 4 TiB.
  b_.Op("MatMul", {x, x}, {{"transpose_b", true}}, "y");
  Session* const session = Open();
  const auto result = session->Run({{"x", Count(Shape({1 << 20, 1}))}}, {"y"});
  EXPECT_EQ(result.status().code(), absl::StatusCode::kResourceExhausted) << result.status();
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("GPU:0"));
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("{{node y}}"));
  EXPECT_TRUE(session->Run({{"x", Count(Shape({2, 1}))}}, {"y"}).ok());
}

TEST_F(CudaTest, MemoryComesBack) {
  b_.device = kGpu;
  const Endpoint x = Placeholder("x");
  b_.Op("AddV2", {b_.Op("Mul", {x, x}), x}, {}, "y");
  Session* const session = Open();
  const Tensor value = Count(Shape({1 << 20}));
  ASSERT_TRUE(session->Run({{"x", value}}, {"y"}).ok());
  ASSERT_TRUE(gpu_->Synchronize().ok());
  const uint64_t before = gpu_->allocator()->bytes_in_use();
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(session->Run({{"x", value}}, {"y"}).ok());
  ASSERT_TRUE(gpu_->Synchronize().ok());
  EXPECT_EQ(gpu_->allocator()->bytes_in_use(), before);
}

TEST_F(CudaTest, AnOpWithoutAGpuKernelIsNamed) {
  b_.device = kGpu;
  b_.Op("Erf", {Placeholder("x")}, {}, "erf");
  const auto result = Open()->Run({{"x", Count(Shape({2}))}}, {"erf"});
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("erf"));
  EXPECT_TRUE(Open({.allow_soft_placement = true})->Run({{"x", Count(Shape({2}))}}, {"erf"}).ok());
}

}  // namespace
}  // namespace millrace
