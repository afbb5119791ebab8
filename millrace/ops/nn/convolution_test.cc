#include "tests/ops/run_op.h"

namespace millrace {
namespace {

struct Case {
  const char* name;
  Shape input, filter;
  int64_t stride, dilation;
  const char* padding;
};

// The padding before and the size of the output, as TensorFlow defines them.
void Slide(int64_t in, int64_t k, const Case& c, int64_t* pad, int64_t* out) {
  const int64_t extent = (k - 1) * c.dilation + 1;
  if (std::string(c.padding) == "VALID") {
    *pad = 0;
    *out = (in - extent) / c.stride + 1;
  } else {
    *out = (in + c.stride - 1) / c.stride;
    *pad = std::max<int64_t>((*out - 1) * c.stride + extent - in, 0) / 2;
  }
}

// Calls fn(i, f, o): flat places of an input, a filter and an output element that meet in one product.
template <typename Fn>
Shape ForProducts(const Case& c, Fn fn) {
  const int64_t n = c.input.dim(0), h = c.input.dim(1), w = c.input.dim(2), ci = c.input.dim(3);
  const int64_t kh = c.filter.dim(0), kw = c.filter.dim(1), fi = c.filter.dim(2), co = c.filter.dim(3);
  const int64_t per_group = co / (ci / fi);
  int64_t ph, pw, oh, ow;
  Slide(h, kh, c, &ph, &oh);
  Slide(w, kw, c, &pw, &ow);
  for (int64_t b = 0; b < n; ++b)
    for (int64_t y = 0; y < oh; ++y)
      for (int64_t x = 0; x < ow; ++x)
        for (int64_t i = 0; i < kh; ++i)
          for (int64_t j = 0; j < kw; ++j) {
            const int64_t yy = y * c.stride + i * c.dilation - ph, xx = x * c.stride + j * c.dilation - pw;
            if (yy < 0 || yy >= h || xx < 0 || xx >= w) continue;
            for (int64_t o = 0; o < co; ++o)
              for (int64_t p = 0; p < fi; ++p)
                fn(((b * h + yy) * w + xx) * ci + o / per_group * fi + p, ((i * kw + j) * fi + p) * co + o,
                   ((b * oh + y) * ow + x) * co + o);
          }
  return Shape({n, oh, ow, co});
}

Tensor Zeros(Shape shape) {
  Tensor t(DType::kFloat, std::move(shape));
  std::fill(t.flat<float>().begin(), t.flat<float>().end(), 0.0f);
  return t;
}

struct Sums {
  explicit Sums(const Shape& s) : shape(s), at(s.num_elements()) {}
  Tensor Rounded() const {
    Tensor t(DType::kFloat, shape);
    std::copy(at.begin(), at.end(), t.data<float>());
    return t;
  }
  Shape shape;
  std::vector<double> at;
};

Tensor Sizes(const Shape& s) { return Tensor::FromVector(std::vector<int32_t>(s.dims().begin(), s.dims().end())); }

// Between channels last and channels first.
Tensor Moved(const Tensor& x, bool to_first) {
  const int64_t n = x.dim(0), c = x.dim(to_first ? 3 : 1);
  const int64_t h = x.dim(to_first ? 1 : 2), w = x.dim(to_first ? 2 : 3);
  Tensor y(DType::kFloat, to_first ? Shape({n, c, h, w}) : Shape({n, h, w, c}));
  for (int64_t b = 0; b < n; ++b)
    for (int64_t p = 0; p < h * w; ++p)
      for (int64_t k = 0; k < c; ++k) {
        const int64_t last = (b * h * w + p) * c + k, first = (b * c + k) * h * w + p;
        y.data<float>()[to_first ? first : last] = x.data<float>()[to_first ? last : first];
      }
  return y;
}

class ConvolutionTest : public testing::TestWithParam<Case> {
 protected:
  AttrList Attrs(const char* format = "NHWC") const {
    const Case& c = GetParam();
    const bool first = format[1] == 'C';
    const auto spread = [&](int64_t v) {
      return first ? std::vector<int64_t>{1, 1, v, v} : std::vector<int64_t>{1, v, v, 1};
    };
    return {{"strides", spread(c.stride)},
            {"dilations", spread(c.dilation)},
            {"padding", c.padding},
            {"data_format", format}};
  }
};

TEST_P(ConvolutionTest, AllThreeAgreeWithPlainSumsOnAnyNumberOfThreads) {
  const Case& c = GetParam();
  const Tensor x = Noise(c.input), f = Noise(c.filter, 2);
  const Shape output = ForProducts(c, [](int64_t, int64_t, int64_t) {});
  const Tensor dy = Noise(output, 3);
  Sums y_sums(output), dx_sums(c.input), df_sums(c.filter);
  ForProducts(c, [&](int64_t i, int64_t k, int64_t o) {
    const double in = x.data<float>()[i], weight = f.data<float>()[k], grad = dy.data<float>()[o];
    y_sums.at[o] += in * weight;
    dx_sums.at[i] += grad * weight;
    df_sums.at[k] += grad * in;
  });
  const Tensor y = y_sums.Rounded(), dx = dx_sums.Rounded(), df = df_sums.Rounded();
  const float tolerance = 1e-4f;
  auto out = RunOnAllThreads("Conv2D", {x, f}, Attrs());
  ASSERT_EQ(out.size(), 1);
  ExpectNear(out[0], y, tolerance);
  out = RunOnAllThreads("Conv2DBackpropInput", {Sizes(c.input), f, dy}, Attrs());
  ASSERT_EQ(out.size(), 1);
  ExpectNear(out[0], dx, tolerance);
  out = RunOnAllThreads("Conv2DBackpropFilter", {x, Sizes(c.filter), dy}, Attrs());
  ASSERT_EQ(out.size(), 1);
  ExpectNear(out[0], df, tolerance);
}

TEST_P(ConvolutionTest, ChannelsFirstGivesTheSameNumbers) {
  const Case& c = GetParam();
  const Tensor x = Noise(c.input), f = Noise(c.filter, 2);
  const auto last = RunOp("Conv2D", {x, f}, Attrs());
  const auto first = RunOp("Conv2D", {Moved(x, true), f}, Attrs("NCHW"));
  ASSERT_TRUE(last.ok() && first.ok()) << last.status() << first.status();
  ExpectNear(Moved((*first)[0], false), (*last)[0], 2e-4f);
  const Tensor dy = Noise((*last)[0].shape(), 3);
  const auto dlast = RunOp("Conv2DBackpropFilter", {x, Sizes(c.filter), dy}, Attrs());
  const auto dfirst = RunOp("Conv2DBackpropFilter", {Moved(x, true), Sizes(c.filter), Moved(dy, true)}, Attrs("NCHW"));
  ASSERT_TRUE(dlast.ok() && dfirst.ok()) << dlast.status() << dfirst.status();
  ExpectNear((*dfirst)[0], (*dlast)[0], 2e-4f);
}

INSTANTIATE_TEST_SUITE_P(
    Cases, ConvolutionTest,
    testing::Values(Case{"same", Shape({3, 9, 8, 5}), Shape({3, 3, 5, 7}), 1, 1, "SAME"},
                    Case{"valid_strided", Shape({2, 11, 12, 3}), Shape({3, 2, 3, 4}), 2, 1, "VALID"},
                    Case{"dilated", Shape({2, 12, 12, 4}), Shape({3, 3, 4, 4}), 1, 2, "SAME"},
                    Case{"groups", Shape({2, 6, 6, 8}), Shape({3, 3, 4, 6}), 1, 1, "SAME"},
                    Case{"mnist", Shape({33, 28, 28, 1}), Shape({5, 5, 1, 32}), 1, 1, "SAME"},
                    Case{"colours", Shape({5, 19, 23, 3}), Shape({3, 3, 3, 16}), 1, 1, "SAME"},
                    Case{"colours_in_many_sums", Shape({14, 32, 32, 3}), Shape({3, 3, 3, 16}), 1, 1, "SAME"},
                    Case{"colours_strided", Shape({5, 20, 22, 3}), Shape({3, 3, 3, 32}), 2, 1, "SAME"},
                    Case{"colours_narrow", Shape({5, 9, 8, 3}), Shape({3, 3, 3, 24}), 2, 1, "VALID"},
                    Case{"tiles_with_rests", Shape({7, 13, 11, 24}), Shape({3, 3, 24, 16}), 1, 1, "SAME"},
                    Case{"tiles_valid", Shape({6, 14, 17, 8}), Shape({3, 3, 8, 40}), 1, 1, "VALID"},
                    Case{"tiles_of_one_wide_image", Shape({1, 5, 230, 16}), Shape({3, 3, 16, 16}), 1, 1, "SAME"},
                    Case{"tiles_of_wide_vectors", Shape({6, 13, 11, 32}), Shape({3, 3, 32, 48}), 1, 1, "SAME"},
                    Case{"tiles_of_small_images", Shape({37, 4, 3, 16}), Shape({3, 3, 16, 64}), 1, 1, "SAME"},
                    Case{"tiles_in_many_sums", Shape({33, 16, 16, 16}), Shape({3, 3, 16, 16}), 1, 1, "VALID"},
                    Case{"tiles_strided", Shape({9, 16, 16, 16}), Shape({3, 3, 16, 32}), 2, 1, "SAME"},
                    Case{"tiles_strided_with_rests", Shape({8, 15, 18, 32}), Shape({3, 3, 32, 16}), 2, 1, "VALID"},
                    Case{"narrow_tiles_strided", Shape({9, 14, 20, 24}), Shape({3, 3, 24, 8}), 2, 1, "SAME"},
                    Case{"tiles_of_five", Shape({4, 13, 10, 24}), Shape({5, 5, 24, 16}), 1, 1, "SAME"},
                    Case{"tiles_of_five_valid", Shape({3, 15, 40, 8}), Shape({5, 5, 8, 40}), 1, 1, "VALID"},
                    Case{"stride_beyond_window", Shape({2, 8, 8, 3}), Shape({1, 1, 3, 5}), 2, 1, "SAME"}),
    [](const auto& info) { return info.param.name; });

// Paddings that differ by side, wider than the window: the same as a convolution of an image padded by hand.
TEST(ConvolutionPaddings, AreThoseGiven) {
  const Tensor x = Noise(Shape({5, 10, 9, 16})), f = Noise(Shape({3, 3, 16, 24}), 2);
  Tensor padded = Zeros(Shape({5, 10 + 3, 9 + 4, 16}));
  for (int64_t b = 0; b < 5; ++b)
    for (int64_t y = 0; y < 10; ++y)
      std::copy_n(x.data<float>() + (b * 10 + y) * 9 * 16, 9 * 16,
                  padded.data<float>() + ((b * 13 + y + 3) * 13 + 4) * 16);
  const std::vector<int64_t> ones = {1, 1, 1, 1};
  const AttrList given = {
      {"strides", ones}, {"padding", "EXPLICIT"}, {"explicit_paddings", std::vector<int64_t>{0, 0, 3, 0, 4, 0, 0, 0}}};
  const AttrList valid = {{"strides", ones}, {"padding", "VALID"}};
  const auto want = RunOp("Conv2D", {padded, f}, valid);
  const auto got = RunOp("Conv2D", {x, f}, given);
  ASSERT_TRUE(want.ok() && got.ok()) << want.status() << got.status();
  ExpectNear((*got)[0], (*want)[0], 1e-5f);
  const Tensor dy = Noise((*got)[0].shape(), 3);
  const auto df = RunOp("Conv2DBackpropFilter", {x, Sizes(f.shape()), dy}, given);
  const auto want_df = RunOp("Conv2DBackpropFilter", {padded, Sizes(f.shape()), dy}, valid);
  ASSERT_TRUE(df.ok() && want_df.ok()) << df.status() << want_df.status();
  ExpectNear((*df)[0], (*want_df)[0], 1e-4f);
  const auto dx = RunOp("Conv2DBackpropInput", {Sizes(x.shape()), f, dy}, given);
  const auto dp = RunOp("Conv2DBackpropInput", {Sizes(padded.shape()), f, dy}, valid);
  ASSERT_TRUE(dx.ok() && dp.ok()) << dx.status() << dp.status();
  for (int64_t b = 0; b < 5; ++b)
    for (int64_t y = 0; y < 10; ++y)
      for (int64_t i = 0; i < 9 * 16; ++i) {
        const float a = (*dx)[0].data<float>()[(b * 10 + y) * 9 * 16 + i];
        const float w = (*dp)[0].data<float>()[((b * 13 + y + 3) * 13 + 4) * 16 + i];
        ASSERT_NEAR(a, w, 1e-4f) << b << " " << y << " " << i;
      }
}

// The rounding of tiles is within a small factor of that of float sums.
TEST(ConvolutionTilesTest, AreNearlyAsAccurateAsPlainSums) {
  const Case c{"", Shape({4, 8, 8, 64}), Shape({3, 3, 64, 32}), 1, 1, "SAME"};
  const Tensor x = Noise(c.input), f = Noise(c.filter, 2);
  const Shape output({4, 8, 8, 32});
  Sums exact(output);
  std::vector<float> plain(exact.at.size());
  ForProducts(c, [&](int64_t i, int64_t k, int64_t o) {
    exact.at[o] += static_cast<double>(x.data<float>()[i]) * f.data<float>()[k];
    plain[o] += x.data<float>()[i] * f.data<float>()[k];
  });
  const auto out = RunOp("Conv2D", {x, f}, {{"strides", std::vector<int64_t>{1, 1, 1, 1}}, {"padding", c.padding}});
  ASSERT_TRUE(out.ok()) << out.status();
  double tile_error = 0, plain_error = 0;
  for (size_t i = 0; i < exact.at.size(); ++i) {
    tile_error += std::pow((*out)[0].data<float>()[i] - exact.at[i], 2);
    plain_error += std::pow(plain[i] - exact.at[i], 2);
  }
  EXPECT_LT(std::sqrt(tile_error), 3 * std::sqrt(plain_error));
}

TEST(DepthwiseConvolutionTest, IsAConvolutionOfEachChannelOnItsOwn) {
  const AttrList attrs = {{"strides", std::vector<int64_t>{1, 1, 1, 1}}, {"padding", "SAME"}};
  for (int64_t multiplier : {1, 3}) {
    const Tensor x = Noise(Shape({2, 6, 5, 4})), f = Noise(Shape({3, 3, 4, multiplier}), 2);
    const auto out = RunOnAllThreads("DepthwiseConv2dNative", {x, f}, attrs);
    ASSERT_EQ(out.size(), 1);
    // The same numbers in memory, seen as the filter of as many groups as channels.
    const auto grouped = RunOp("Conv2D", {x, f.ViewAs(DType::kFloat, Shape({3, 3, 1, 4 * multiplier}))}, attrs);
    ASSERT_TRUE(grouped.ok()) << grouped.status();
    ExpectNear(out[0], (*grouped)[0], 1e-5f);
  }
}

TEST(ConvolutionErrors, NameTheDimensions) {
  const AttrList attrs = {{"strides", std::vector<int64_t>{1, 1, 1, 1}}, {"padding", "VALID"}};
  Status status = RunOp("Conv2D", {Noise(Shape({1, 4, 4, 3})), Noise(Shape({3, 3, 2, 1}))}, attrs).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("[3,3,2,1]"), std::string::npos) << status;
  status = RunOp("Conv2D", {Noise(Shape({1, 2, 2, 3})), Noise(Shape({9, 9, 3, 1}))}, attrs).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  status = RunOp("Conv2DBackpropInput",
                 {Tensor::Of<int32_t>({1, 4, -4, 3}), Noise(Shape({3, 3, 3, 1})), Noise(Shape({1, 2, 2, 1}))}, attrs)
               .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  status = RunOp("Conv2DBackpropFilter",
                 {Noise(Shape({1, 4, 4, 3})), Tensor::Of<int32_t>({3, 3, 3, 1}), Noise(Shape({1, 3, 3, 1}))}, attrs)
               .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace millrace
