// The text of GPUs' own convolutions, run on the host, gives what the CPU's kernels give.
#include <map>
#include <memory>

#include "gtest/gtest.h"
#include "millrace/ops/kernels/cuda/cpu_results_testing.h"
#include "millrace/ops/kernels/cuda/host_programs_testing.h"
#include "millrace/ops/nn/cuda/column_plan.h"
#include "millrace/ops/nn/cuda/conv_program.h"

namespace millrace {
namespace {

struct ConvCase {
  std::vector<int64_t> spatial, window;
  int64_t batch = 1, in = 1, out = 1;  // channels; of a depthwise filter, `out` is the multiplier
  int64_t stride = 1, dilation = 1;
  const char* padding = "SAME";
  std::vector<int64_t> explicit_pads = {};  // before and after each spatial dimension
  int64_t groups = 1;
  bool depthwise = false;
};

const std::vector<ConvCase>& ConvCases() {
  static const auto* const cases = new std::vector<ConvCase>{
      {.spatial = {5, 6}, .window = {3, 3}, .batch = 2, .in = 3, .out = 4},
      {.spatial = {7, 8}, .window = {3, 2}, .in = 2, .out = 3, .stride = 2},
      {.spatial = {9, 9}, .window = {3, 3}, .batch = 2, .in = 2, .out = 2, .stride = 1, .dilation = 2},
      {.spatial = {6, 5}, .window = {2, 3}, .in = 4, .out = 2, .padding = "VALID"},
      {.spatial = {6, 7},
       .window = {3, 3},
       .in = 2,
       .out = 3,
       .stride = 2,
       .padding = "EXPLICIT",
       .explicit_pads = {0, 2, 1, 0}},
      {.spatial = {5, 5}, .window = {3, 3}, .batch = 2, .in = 4, .out = 6, .groups = 2},
      {.spatial = {6, 6}, .window = {1, 1}, .in = 3, .out = 5, .stride = 2},
      {.spatial = {40, 40}, .window = {3, 3}, .batch = 9, .in = 1, .out = 2},
      {.spatial = {6, 7}, .window = {3, 3}, .batch = 2, .in = 3, .out = 2, .stride = 2, .depthwise = true},
      {.spatial = {8, 8}, .window = {3, 3}, .in = 40, .out = 1, .depthwise = true},
      {.spatial = {4, 5, 3}, .window = {2, 3, 2}, .batch = 2, .in = 2, .out = 3, .stride = 2},
      {.spatial = {4, 4, 4}, .window = {3, 1, 2}, .in = 2, .out = 2, .padding = "VALID"}};
  return *cases;
}

// A list of ints in the layout's order: 1 for batch and channels.
std::vector<int64_t> Around(const std::vector<int64_t>& spatial, int64_t batch, int64_t channels, bool channels_first) {
  std::vector<int64_t> all = {batch};
  if (channels_first) all.push_back(channels);
  all.insert(all.end(), spatial.begin(), spatial.end());
  if (!channels_first) all.push_back(channels);
  return all;
}

AttrList ConvAttrs(const ConvCase& c, bool channels_first) {
  const std::vector<int64_t> ones(c.spatial.size(), 1);
  const auto each = [&](int64_t value) {
    return Around(std::vector<int64_t>(c.spatial.size(), value), 1, 1, channels_first);
  };
  const bool is_3d = c.spatial.size() == 3;
  const char* const format = is_3d ? (channels_first ? "NCDHW" : "NDHWC") : channels_first ? "NCHW" : "NHWC";
  AttrList attrs = {
      {"strides", each(c.stride)}, {"dilations", each(c.dilation)}, {"padding", c.padding}, {"data_format", format}};
  if (!c.explicit_pads.empty()) {
    std::vector<int64_t> pads(c.explicit_pads);
    const std::vector<int64_t> none = {0, 0};
    pads.insert(channels_first ? pads.begin() : pads.end(), none.begin(), none.end());
    pads.insert(pads.begin(), none.begin(), none.end());
    attrs.push_back({"explicit_paddings", pads});
  }
  return attrs;
}

Tensor SizesAsTensor(const Shape& shape) {
  Tensor sizes(DType::kInt32, Shape({shape.rank()}));
  for (int i = 0; i < shape.rank(); ++i) sizes.data<int32_t>()[i] = static_cast<int32_t>(shape.dim(i));
  return sizes;
}

TEST(HostConvolutions, AgreeWithTheCpu) {
  for (const DType dtype : {DType::kFloat, DType::kDouble, DType::kBFloat16}) {
    HostProgram program(ConvProgram{.dtype = dtype}.Text(),
                        {ConvProgram::kForward, ConvProgram::kInput, ConvProgram::kFilter, ConvProgram::kJoin});
    ASSERT_TRUE(program.ok());
    for (const ConvCase& c : ConvCases()) {
      for (const bool channels_first : {false, true}) {
        // The CPU's forward kernel of double, int32 and depthwise filters takes channels in both orders, too.
        Graph graph;
        GraphBuilder b(&graph);
        const std::string family = c.spatial.size() == 3 ? "Conv3D" : c.depthwise ? "DepthwiseConv2dNative" : "Conv2D";
        const AttrList attrs = ConvAttrs(c, channels_first);
        const Shape in(Around(c.spatial, c.batch, c.in, channels_first));
        std::vector<int64_t> filter_dims = c.window;
        filter_dims.push_back(c.in / c.groups);
        filter_dims.push_back(c.out);
        const Shape filter(filter_dims);
        SCOPED_TRACE(absl::StrCat(family, " of ", DTypeName(dtype), in.ToString(), " by ", filter.ToString(), " ",
                                  c.padding, channels_first ? ", channels first" : ""));
        const Tensor x = Noise(dtype, in, 3), w = Noise(dtype, filter, 5);
        const Tensor y = OnCpu(family, {x, w}, attrs)[0];
        const Tensor dy = Noise(dtype, y.shape(), 9);
        const std::string v2 = c.spatial.size() == 3 ? "V2" : "";
        const Tensor dx = OnCpu(family + "BackpropInput" + v2, {SizesAsTensor(in), w, dy}, attrs)[0];
        const Tensor dw = OnCpu(family + "BackpropFilter" + v2, {x, SizesAsTensor(filter), dy}, attrs)[0];

        Node* const node = b.AddNode(family, {b.Const(x), b.Const(w)}, attrs, "conv");
        const WindowAttrs window = WindowAttrs::FromNode(*node).value();
        const ConvGeometry g = MakeConvGeometry(window, in, filter, c.depthwise).value();
        ConvProgram::OnDevice there(g);
        const void *from_x = x.raw_data(), *from_w = w.raw_data(), *from_dy = dy.raw_data();
        Tensor got_y(dtype, y.shape()), got_dx(dtype, dx.shape()), got_dw(dtype, dw.shape());
        void *to_y = got_y.raw_data(), *to_dx = got_dx.raw_data(), *to_dw = got_dw.raw_data();
        int64_t n = y.num_elements();
        program.Launch(ConvProgram::kForward, {3}, {64}, {&n, &there, &from_x, &from_w, &to_y});
        ExpectNear(got_y, y);
        n = dx.num_elements();
        program.Launch(ConvProgram::kInput, {3}, {64}, {&n, &there, &from_w, &from_dy, &to_dx});
        ExpectNear(got_dx, dx);
        ColumnPlan plan = ColumnPlan::Of(dw.num_elements(), g.batch * g.out_pixels(), true), join = plan.Join();
        std::vector<double> pieces(plan.pieces() * dw.num_elements());
        void* partial = pieces.data();
        program.Launch(ConvProgram::kFilter, {plan.blocks[0], plan.blocks[1]}, {plan.threads[0], plan.threads[1]},
                       {&plan.columns, &there, &from_x, &from_dy, &partial});
        program.Launch(ConvProgram::kJoin, {join.blocks[0], join.blocks[1]}, {join.threads[0], join.threads[1]},
                       {&join.columns, &partial, &to_dw});
        ExpectNear(got_dw, dw);
      }
    }
  }
}

}  // namespace
}  // namespace millrace
