#include "millrace/runtime/kernel.h"

#include <gtest/gtest.h>

#include "millrace/device/cpu/cpu_device.h"
#include "millrace/graph/graph.h"
#include "millrace/runtime/kernel_registry.h"
#include "millrace/runtime/resource_manager.h"
#include "millrace/runtime/variable.h"

namespace millrace {
namespace {

MILLRACE_OP(KernelTestSource).Output("y: T").Attr("T: type").Attr("size: int = 3").NotDifferentiable();
MILLRACE_OP(KernelTestCast).Input("x: S").Output("y: T").Attr("S: type").Attr("T: type").NotDifferentiable();
MILLRACE_OP(KernelTestNoKernel).NotDifferentiable();

class SourceKernel : public Kernel {
 public:
  explicit SourceKernel(KernelInit& init) {
    int64_t size = 0;
    init.Attr("size", &size);
    if (size < 0) init.Fail(InvalidArgument("size is ", size));
    if (init.output_type(0) == DType::kString) FailDType(init, DType::kString);
  }
  Status Compute(KernelContext&) override { return absl::OkStatus(); }
};
MILLRACE_KERNEL(KernelTestSource, kCpu, SourceKernel);

class KernelTest : public ::testing::Test {
 protected:
  Node* Add(std::string name, std::string op, std::vector<Endpoint> inputs, AttrList attrs) {
    NodeSpec spec{.name = std::move(name), .op = std::move(op), .inputs = std::move(inputs)};
    for (auto& [key, value] : attrs) spec.attrs[key] = value.value();
    StatusOr<Node*> node = graph_.AddNode(std::move(spec));
    MR_CHECK(node.ok());
    return *node;
  }
  // A context for `cast`, whose one input is `*input`.
  KernelContext Context(const Node* cast, const Tensor* input, bool forwardable) {
    KernelContext ctx;
    KernelContextAccess access(ctx);
    input_ = input;
    access.Set(cast, device_.get(), device_->allocator(), &step_);
    access.SetInputs(&input_, 1, forwardable ? 1 : 0);
    access.SetOutputs(&output_, 1);
    return ctx;
  }
  Node* Cast(DType from, DType to) {
    Node* source = Add(graph_.UniqueName("source"), "KernelTestSource", {}, {{"T", from}});
    return Add(graph_.UniqueName("cast"), "KernelTestCast", {source->output(0)}, {{"S", from}, {"T", to}});
  }

  Graph graph_;
  std::unique_ptr<Device> device_ = NewCpuDevice({.intra_op_threads = 1});
  ResourceManager resources_;
  StepContext step_{.resources = &resources_};
  const Tensor* input_ = nullptr;
  Tensor output_;
};

TEST_F(KernelTest, ForwardsAnInputThatNobodyElseHolds) {
  Node* cast = Cast(DType::kFloat, DType::kInt32);
  const Tensor in = Tensor::Of<float>(Shape({2, 3}), {1, 2, 3, 4, 5, 6});
  KernelContext ctx = Context(cast, &in, /*forwardable=*/true);
  Tensor* out = ctx.ForwardOrAllocateOutput({0}, 0, Shape({6})).value();
  EXPECT_EQ(out->raw_data(), in.raw_data());
  EXPECT_EQ(out->dtype(), DType::kInt32);
  EXPECT_EQ(out->shape(), Shape({6}));
}

TEST_F(KernelTest, DoesNotForwardWhatIsSharedTooSmallOrNotOffered) {
  Node* same = Cast(DType::kFloat, DType::kInt32);
  Node* wider = Cast(DType::kFloat, DType::kInt64);
  const Tensor in = Tensor::Of<float>({1, 2, 3});
  KernelContext not_offered = Context(same, &in, /*forwardable=*/false);
  EXPECT_NE(not_offered.ForwardOrAllocateOutput({0}, 0, Shape({3})).value()->raw_data(), in.raw_data());
  KernelContext other_size = Context(wider, &in, /*forwardable=*/true);
  EXPECT_NE(other_size.ForwardOrAllocateOutput({0}, 0, Shape({3})).value()->raw_data(), in.raw_data());
  KernelContext other_count = Context(same, &in, /*forwardable=*/true);
  EXPECT_NE(other_count.ForwardOrAllocateOutput({0}, 0, Shape({2})).value()->raw_data(), in.raw_data());
  const Tensor second = in;
  KernelContext shared = Context(same, &in, /*forwardable=*/true);
  EXPECT_NE(shared.ForwardOrAllocateOutput({0}, 0, Shape({3})).value()->raw_data(), in.raw_data());
}

TEST_F(KernelTest, TooLargeAnOutputIsAnError) {
  Node* cast = Cast(DType::kFloat, DType::kFloat);
  const Tensor in = Tensor::Scalar<float>(1);
  KernelContext ctx = Context(cast, &in, true);
  EXPECT_EQ(ctx.AllocateOutput(0, Shape({int64_t{1} << 32, int64_t{1} << 32})).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ctx.AllocateOutput(0, Shape({int64_t{1} << 58})).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(KernelTest, ResourceIsFoundByPointerAndByName) {
  auto variable = MakeRef<Variable>("w", DType::kFloat, PartialShape());
  ASSERT_TRUE(resources_.Create("", "w", variable).ok());
  Node* cast = Cast(DType::kResource, DType::kFloat);
  ResourceHandle handle;
  handle.name = "w";
  const Tensor by_name = MakeHandleTensor(DType::kResource, handle);
  EXPECT_EQ(Context(cast, &by_name, false).resource<Variable>(0).value().get(), variable.get());
  handle.name = "another";
  handle.resource = variable;
  const Tensor by_pointer = MakeHandleTensor(RefType(DType::kFloat), handle);
  EXPECT_EQ(Context(cast, &by_pointer, false).resource<Variable>(0).value().get(), variable.get());
  const Tensor no_handle = Tensor::Scalar<float>(1);
  EXPECT_EQ(Context(cast, &no_handle, false).resource<Variable>(0).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(KernelTest, RegistryErrorsNameNodeOpAndDevice) {
  const KernelRegistry& registry = KernelRegistry::Global();
  EXPECT_TRUE(registry.Create(*Add("fine", "KernelTestSource", {}, {{"T", DType::kFloat}}), device_.get()).ok());
  const auto check = [&](const Node* node, absl::StatusCode code) {
    const Status status = registry.Create(*node, device_.get()).status();
    EXPECT_EQ(status.code(), code);
    for (const std::string& part : {node->name(), node->type(), device_->name()}) {
      EXPECT_NE(status.message().find(part), absl::string_view::npos) << status;
    }
  };
  check(Add("lonely", "KernelTestNoKernel", {}, {}), absl::StatusCode::kNotFound);
  check(Add("negative", "KernelTestSource", {}, {{"T", DType::kFloat}, {"size", -1}}),
        absl::StatusCode::kInvalidArgument);
  check(Add("strings", "KernelTestSource", {}, {{"T", DType::kString}}), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(registry.DevicesFor("KernelTestSource"), std::vector<std::string>({"CPU"}));
  EXPECT_FALSE(registry.Has("KernelTestSource", "GPU"));
}

TEST_F(KernelTest, AKernelMayBeForSomeTypesOnly) {
  KernelRegistry registry;
  const KernelRegistry::Factory none = [](KernelInit&) -> std::unique_ptr<Kernel> { return nullptr; };
  registry.Register("KernelTestSource", kCuda, none, {"T", {DType::kFloat, DType::kHalf}});
  registry.Register("KernelTestSource", kCuda, none, {"T", {DType::kInt32}});
  const auto has = [&](DType dtype) {
    return registry.HasFor(*Add(absl::StrCat("n", static_cast<int>(dtype)), "KernelTestSource", {}, {{"T", dtype}}),
                           "GPU");
  };
  EXPECT_TRUE(has(DType::kFloat));
  EXPECT_TRUE(has(DType::kInt32));
  EXPECT_FALSE(has(DType::kDouble));
  EXPECT_TRUE(registry.Has("KernelTestSource", "GPU"));
}

}  // namespace
}  // namespace millrace
