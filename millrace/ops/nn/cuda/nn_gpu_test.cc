// Convolutions, pools, batch normalisation and batched products on a GPU give what the CPU gives. Skipped where there
// is no GPU; the golden cases have more shapes.
#include <cmath>
#include <cstdlib>

#include "gtest/gtest.h"
#include "millrace/device/cuda_devices.h"
#include "millrace/ops/kernels/cuda/cpu_results_testing.h"

namespace millrace {
namespace {

struct OpCase {
  std::string op;
  std::vector<Shape> inputs;
  AttrList attrs;
  std::vector<int> sizes_of = {};  // the inputs that are shapes, in place of tensors of that shape
  int outputs = 1;
};

const std::vector<OpCase>& OpCases() {
  const std::vector<int64_t> one = {1, 1, 1, 1}, two = {1, 2, 2, 1}, first = {1, 1, 2, 2};
  const AttrList same = {{"strides", two}, {"padding", "SAME"}};
  const AttrList channels_first = {{"strides", first}, {"padding", "SAME"}, {"data_format", "NCHW"}};
  const AttrList explicit_pads = {
      {"strides", one}, {"padding", "EXPLICIT"}, {"explicit_paddings", std::vector<int64_t>{0, 0, 0, 2, 1, 0, 0, 0}}};
  const Shape images({8, 33, 32, 16}), planes({8, 16, 33, 32}), filter({3, 3, 16, 24}), vector({16});
  static const auto* const cases = new std::vector<OpCase>{
      {"Conv2D", {images, filter}, same},
      {"Conv2D", {planes, filter}, channels_first},
      {"Conv2D", {images, filter}, explicit_pads},
      {"Conv2D", {images, Shape({1, 1, 16, 5})}, {{"strides", one}, {"padding", "VALID"}}},
      {"Conv2D", {images, Shape({3, 3, 4, 24})}, same},
      {"Conv2DBackpropInput", {images, filter, Shape({8, 17, 16, 24})}, same, {0}},
      {"Conv2DBackpropInput", {planes, filter, Shape({8, 24, 17, 16})}, channels_first, {0}},
      {"Conv2DBackpropFilter", {images, filter, Shape({8, 17, 16, 24})}, same, {1}},
      {"Conv2DBackpropFilter", {planes, filter, Shape({8, 24, 17, 16})}, channels_first, {1}},
      {"DepthwiseConv2dNative", {images, Shape({3, 3, 16, 2})}, same},
      {"DepthwiseConv2dNativeBackpropInput", {images, Shape({3, 3, 16, 2}), Shape({8, 17, 16, 32})}, same, {0}},
      {"DepthwiseConv2dNativeBackpropFilter", {images, Shape({3, 3, 16, 2}), Shape({8, 17, 16, 32})}, same, {1}},
      {"FusedBatchNormV3", {images, vector, vector, vector, vector}, {{"U", DType::kFloat}}, {}, 5},
      {"FusedBatchNormGradV3", {images, images, vector, vector, vector, Shape()}, {{"U", DType::kFloat}}, {}, 3},
      {"MaxPool", {images}, {{"ksize", two}, {"strides", two}, {"padding", "SAME"}}},
      {"AvgPool", {images}, {{"ksize", std::vector<int64_t>{1, 3, 3, 1}}, {"strides", two}, {"padding", "SAME"}}},
      {"BatchMatMulV2", {Shape({4, 1, 30, 20}), Shape({3, 20, 40})}, {}},
      {"BatchMatMulV2", {Shape({4, 3, 20, 30}), Shape({4, 3, 40, 20})}, {{"adj_x", true}, {"adj_y", true}}},
      {"BatchMatMulV2", {Shape({4, 3, 30, 20}), Shape({20, 40})}, {}},
      {"Einsum", {Shape({4, 30, 3, 20}), Shape({4, 25, 3, 20})}, {{"equation", "BTNH,BSNH->BNTS"}, {"N", 2}}},
      {"Einsum", {Shape({4, 30, 5}), Shape({5, 7})}, {{"equation", "abc,cd->ad"}, {"N", 2}}}};
  return *cases;
}

class NnOnGpu : public ::testing::TestWithParam<int> {};

// Inputs that must be positive, variances, are the last vectors.
std::vector<Tensor> InputsOf(const OpCase& c, DType dtype) {
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    const Shape& shape = c.inputs[i];
    if (std::find(c.sizes_of.begin(), c.sizes_of.end(), static_cast<int>(i)) != c.sizes_of.end()) {
      Tensor sizes(DType::kInt32, Shape({shape.rank()}));
      for (int d = 0; d < shape.rank(); ++d) sizes.data<int32_t>()[d] = static_cast<int32_t>(shape.dim(d));
      inputs.push_back(sizes);
    } else {
      const bool is_vector = c.op.find("BatchNorm") != std::string::npos && shape.rank() < 4;
      const Tensor noise = Noise(is_vector ? DType::kFloat : dtype, shape, 10 + static_cast<uint32_t>(i));
      inputs.push_back(is_vector ? OnCpu("Abs", {noise}, {})[0] : noise);
    }
  }
  return inputs;
}

TEST_P(NnOnGpu, AgreesWithTheCpu) {
  if (CudaDeviceCount() == 0) GTEST_SKIP() << "there is no GPU here: " << WhyNoCudaDevices();
  const OpCase& c = OpCases()[GetParam()];
  for (const bool tf32 : {false, true}) {
    setenv("MILLRACE_TF32", tf32 ? "1" : "0", 1);
    for (const DType dtype : {DType::kFloat, DType::kHalf, DType::kBFloat16}) {
      SCOPED_TRACE(absl::StrCat(c.op, " of ", DTypeName(dtype), tf32 ? " with TF32" : ""));
      const std::vector<Tensor> inputs = InputsOf(c, dtype);
      const std::vector<Tensor> want = OnCpu(c.op, inputs, c.attrs, c.outputs);
      Graph graph;
      GraphBuilder b(&graph);
      std::vector<Endpoint> values;
      b.device = "/device:CPU:0";
      for (const Tensor& input : inputs) values.push_back(b.Const(input));
      b.device = "/device:GPU:0";
      Node* const node = b.AddNode(c.op, values, c.attrs, "result");
      ASSERT_TRUE(b.ok()) << b.status();
      auto session = Session::Create().value();
      ASSERT_TRUE(session->Extend(graph).ok());
      std::vector<std::string> fetches;
      for (int i = 0; i < c.outputs; ++i) fetches.push_back(node->output(i).name());
      // Twice: the same bytes.
      const auto got = session->Run(fetches), again = session->Run(fetches);
      ASSERT_TRUE(got.ok()) << got.status();
      ASSERT_TRUE(again.ok()) << again.status();
      for (int i = 0; i < c.outputs; ++i) {
        ASSERT_EQ((*got)[i].shape(), want[i].shape());
        EXPECT_EQ(std::memcmp((*got)[i].raw_data(), (*again)[i].raw_data(), want[i].TotalBytes()), 0);
        // Against the largest element: sums of thousands of products are near zero now and then.
        double most = 0, worst = 0;
        for (int64_t k = 0; k < want[i].num_elements(); ++k) {
          most = std::max(most, std::abs(At(want[i], k)));
          worst = std::max(worst, std::abs(At(want[i], k) - At((*got)[i], k)));
        }
        const double tolerance = want[i].dtype() == DType::kBFloat16 ? 1e-2
                                 : want[i].dtype() == DType::kHalf   ? 2e-3
                                 : tf32                              ? 1e-3
                                                                     : 1e-5;
        EXPECT_LE(worst, tolerance * most) << "output " << i;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, NnOnGpu, ::testing::Range(0, 21));

TEST(NnOnGpuCases, AreAllRun) { EXPECT_EQ(OpCases().size(), 21u); }

}  // namespace
}  // namespace millrace
