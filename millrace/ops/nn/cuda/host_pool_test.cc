// The text of GPUs' pools, run on the host, gives what the CPU's kernels give, of ties and paddings too.
#include "gtest/gtest.h"
#include "millrace/ops/kernels/cuda/cpu_results_testing.h"
#include "millrace/ops/kernels/cuda/host_programs_testing.h"
#include "millrace/ops/nn/cuda/pool_program.h"

namespace millrace {
namespace {

struct PoolCase {
  std::vector<int64_t> in, window, strides;  // in the layout's order
  const char* padding = "SAME";
  const char* format = "NHWC";
  std::vector<int64_t> explicit_pads = {};
};

const std::vector<PoolCase>& PoolCases() {
  static const auto* const cases = new std::vector<PoolCase>{
      {{2, 6, 7, 3}, {1, 2, 2, 1}, {1, 2, 2, 1}},
      {{2, 6, 7, 3}, {1, 3, 3, 1}, {1, 1, 1, 1}},
      {{1, 9, 8, 5}, {1, 3, 2, 1}, {1, 2, 3, 1}, "VALID"},
      {{1, 9, 8, 2}, {1, 2, 2, 1}, {1, 3, 3, 1}, "VALID"},  // pixels between windows
      {{2, 3, 6, 7}, {1, 1, 3, 3}, {1, 1, 2, 2}, "SAME", "NCHW"},
      {{1, 5, 5, 2}, {1, 3, 3, 1}, {1, 2, 1, 1}, "EXPLICIT", "NHWC", {0, 0, 1, 2, 2, 0, 0, 0}},
      {{2, 8, 8, 4}, {1, 8, 8, 1}, {1, 1, 1, 1}, "VALID"},
      {{1, 4, 5, 6, 2}, {1, 2, 3, 2, 1}, {1, 2, 2, 1, 1}, "SAME", "NDHWC"}};
  return *cases;
}

AttrList PoolAttrs(const PoolCase& c) {
  AttrList attrs = {{"ksize", c.window}, {"strides", c.strides}, {"padding", c.padding}, {"data_format", c.format}};
  if (!c.explicit_pads.empty()) attrs.push_back({"explicit_paddings", c.explicit_pads});
  return attrs;
}

PoolGeometry PoolGeometryOf(const std::string& op, const PoolCase& c, const Tensor& x, Shape* out) {
  Graph graph;
  GraphBuilder b(&graph);
  const Node* const node = b.AddNode(op, {b.Const(x)}, PoolAttrs(c), "pool");
  EXPECT_TRUE(b.ok()) << b.status();
  return MakePoolGeometry(WindowAttrs::FromNode(*node).value(), x.shape(), out).value();
}

TEST(HostPools, MaximaAgreeWithTheCpu) {
  for (const DType dtype : {DType::kFloat, DType::kHalf, DType::kInt8}) {
    HostProgram program(PoolProgram{.dtype = dtype}.Text(),
                        {PoolProgram::kMax, PoolProgram::kMaxPixels, PoolProgram::kMaxBack, PoolProgram::kMaxBackBack});
    ASSERT_TRUE(program.ok());
    for (const PoolCase& c : PoolCases()) {
      const std::string dims = c.in.size() == 5 ? "3D" : "";
      if (dims == "3D" && dtype == DType::kInt8) continue;
      SCOPED_TRACE(absl::StrCat("MaxPool", dims, " of ", DTypeName(dtype), Shape(c.in).ToString(), " ", c.padding));
      Tensor x = Noise(dtype, Shape(c.in), 3);
      if (dtype == DType::kFloat) x.data<float>()[0] = std::nanf("");
      Shape out;
      PoolGeometry g = PoolGeometryOf("MaxPool" + dims, c, x, &out);
      const Tensor y = OnCpu("MaxPool" + dims, {x}, PoolAttrs(c))[0], dy = Noise(dtype, out, 5);
      const Tensor dx = OnCpu("MaxPool" + dims + "Grad", {x, y, dy}, PoolAttrs(c))[0];
      ASSERT_EQ(y.shape(), out);
      const void *from = x.raw_data(), *grad = dy.raw_data();
      Tensor got(dtype, out), pixels(DType::kInt32, out), got_dx(dtype, x.shape());
      void *to = got.raw_data(), *found = pixels.raw_data(), *to_dx = got_dx.raw_data();
      int64_t n = out.num_elements();
      program.Launch(PoolProgram::kMax, {2}, {64}, {&n, &g, &from, &to});
      ExpectNear(got, y);
      program.Launch(PoolProgram::kMaxPixels, {2}, {64}, {&n, &g, &from, &found});
      n = x.num_elements();
      program.Launch(PoolProgram::kMaxBack, {2}, {64}, {&n, &g, &found, &grad, &to_dx});
      ExpectNear(got_dx, dx);
      if (std::string(c.padding) == "EXPLICIT") continue;
      const Tensor ddx = Noise(dtype, x.shape(), 7);
      const void* second = ddx.raw_data();
      n = out.num_elements();
      program.Launch(PoolProgram::kMaxBackBack, {2}, {64}, {&n, &g, &from, &second, &to});
      ExpectNear(got, OnCpu("MaxPool" + dims + "GradGrad", {x, y, ddx}, PoolAttrs(c))[0]);
    }
  }
}

TEST(HostPools, MeansAgreeWithTheCpu) {
  for (const DType dtype : {DType::kFloat, DType::kBFloat16, DType::kDouble}) {
    HostProgram program(PoolProgram{.dtype = dtype, .averages = true}.Text(),
                        {PoolProgram::kAvg, PoolProgram::kAvgBack});
    ASSERT_TRUE(program.ok());
    for (const PoolCase& c : PoolCases()) {
      if (std::string(c.padding) == "EXPLICIT") continue;
      const std::string op = c.in.size() == 5 ? "AvgPool3D" : "AvgPool";
      SCOPED_TRACE(absl::StrCat(op, " of ", DTypeName(dtype), Shape(c.in).ToString(), " ", c.padding));
      const Tensor x = Noise(dtype, Shape(c.in), 3);
      Shape out;
      PoolGeometry g = PoolGeometryOf(op, c, x, &out);
      const Tensor dy = Noise(dtype, out, 5);
      Tensor sizes(DType::kInt32, Shape({x.rank()}));
      for (int i = 0; i < x.rank(); ++i) sizes.data<int32_t>()[i] = static_cast<int32_t>(x.dim(i));
      Tensor got(dtype, out), got_dx(dtype, x.shape());
      const void *from = x.raw_data(), *grad = dy.raw_data();
      void *to = got.raw_data(), *to_dx = got_dx.raw_data();
      int64_t n = out.num_elements();
      program.Launch(PoolProgram::kAvg, {2}, {64}, {&n, &g, &from, &to});
      ExpectNear(got, OnCpu(op, {x}, PoolAttrs(c))[0]);
      n = x.num_elements();
      program.Launch(PoolProgram::kAvgBack, {2}, {64}, {&n, &g, &grad, &to_dx});
      ExpectNear(got_dx, OnCpu(op + "Grad", {sizes, dy}, PoolAttrs(c))[0]);
    }
  }
}

}  // namespace
}  // namespace millrace
