// What golden cases cannot say of images: damaged files, bad arguments.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "millrace/ops/image/codec.h"
#include "tests/ops/op_session.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ImageTest : public OpSessionTest {
 protected:
  Endpoint Bytes(std::string bytes) { return b_.Const(Tensor::Scalar<std::string>(std::move(bytes))); }
  Status ErrorOf(Endpoint e) { return Fetch({e}).status(); }

  // A picture that does not compress to nothing.
  Tensor Noise(int64_t height, int64_t width, int64_t channels) {
    Tensor t(DType::kUInt8, Shape({height, width, channels}));
    uint32_t state = 1;
    for (int64_t i = 0; i < t.num_elements(); ++i) {
      state = state * 1664525u + 1013904223u;
      t.data<uint8_t>()[i] = static_cast<uint8_t>(state >> 24);
    }
    return t;
  }
  std::string Encoded(const char* op, const Tensor& image) {
    const auto result = Fetch({b_.Op(op, {b_.Const(image)})});
    return result.ok() ? (*result)[0].scalar<std::string>() : "";
  }
};

TEST_F(ImageTest, APngComesBackAsItWas) {
  for (const int64_t channels : {1, 2, 3, 4}) {
    const Tensor image = Noise(5, 7, channels);
    const auto back = Values<uint8_t>(b_.Op("DecodePng", {b_.Op("EncodePng", {b_.Const(image)})}));
    EXPECT_EQ(back, std::vector<uint8_t>(image.data<uint8_t>(), image.data<uint8_t>() + image.num_elements()));
  }
}

// Every prefix of a file, and every file with one byte changed, is a picture or an error.
TEST_F(ImageTest, ADamagedFileIsAPictureOrAnError) {
  std::vector<uint8_t> pixels;
  const auto memory = [&](const Picture& picture) -> StatusOr<void*> {
    pixels.assign(static_cast<size_t>(picture.size()) * 2, 0);
    return pixels.data();
  };
  const auto decode = [&](const std::string& bytes) {
    const Status statuses[] = {DecodePngPicture(bytes, 0, false, memory), DecodePngPicture(bytes, 3, true, memory),
                               DecodeJpegPicture(bytes, {}, memory),      DecodeGifPicture(bytes, true, memory),
                               DecodeBmpPicture(bytes, 0, memory),        JpegPictureSize(bytes).status()};
    for (const Status& s : statuses) EXPECT_TRUE(s.ok() || s.code() == absl::StatusCode::kInvalidArgument) << s;
  };
  const std::string png = Encoded("EncodePng", Noise(6, 5, 3)), jpeg = Encoded("EncodeJpeg", Noise(16, 16, 3));
  ASSERT_GT(png.size(), 50u);
  ASSERT_GT(jpeg.size(), 50u);
  std::string bmp = "BM" + std::string(52, '\0') + std::string(3 * 4 * 4, 'x');
  bmp[10] = 54, bmp[18] = 4, bmp[22] = 4, bmp[28] = 24;
  const std::string gif(
      "GIF89a\x02\x00\x02\x00\x80\x00\x00\xff\x00\x00\x00\x00\xff,\x00\x00\x00\x00\x02\x00\x02\x00\x00"
      "\x02\x03\x0c\x10\x05\x00;",
      37);
  for (const std::string& file : {png, jpeg, bmp, gif}) {
    for (size_t n = 0; n <= file.size(); ++n) decode(file.substr(0, n));
    for (size_t i = 0; i < file.size(); ++i) {
      std::string changed = file;
      changed[i] = static_cast<char>(changed[i] ^ 0x55);
      decode(changed);
    }
  }
}

TEST_F(ImageTest, BadFilesAreNamed) {
  EXPECT_THAT(ErrorOf(b_.Op("DecodeImage", {Bytes("")})).ToString(), HasSubstr("empty"));
  EXPECT_THAT(ErrorOf(b_.Op("DecodeImage", {Bytes("what")})).ToString(), HasSubstr("Unknown image file format"));
  EXPECT_THAT(ErrorOf(b_.Op("DecodeBmp", {Bytes("GIF89a")})).ToString(),
              HasSubstr("Trying to decode GIF format using DecodeBmp op"));
  EXPECT_THAT(ErrorOf(b_.Op("DecodeJpeg", {Bytes("\xff\xd8\xff\xe0 ")})).ToString(), HasSubstr("Invalid JPEG data"));
  const std::string jpeg = Encoded("EncodeJpeg", Noise(16, 16, 3));
  EXPECT_THAT(ErrorOf(b_.Op("DecodeJpeg", {Bytes(jpeg)}, {{"channels", 4}})).ToString(), HasSubstr("for JPEG"));
  EXPECT_THAT(ErrorOf(b_.Op("DecodeAndCropJpeg", {Bytes(jpeg), b_.Ints({8, 8, 9, 1})})).ToString(),
              HasSubstr("crop window"));
}

TEST_F(ImageTest, ATruncatedJpegMayBeRecovered) {
  const std::string jpeg = Encoded("EncodeJpeg", Noise(64, 16, 3));
  const Endpoint cut = Bytes(jpeg.substr(0, jpeg.size() * 4 / 5));
  EXPECT_EQ(ErrorOf(b_.Op("DecodeJpeg", {cut})).code(), absl::StatusCode::kInvalidArgument);
  const AttrList some = {{"try_recover_truncated", true}, {"acceptable_fraction", 0.2f}};
  const AttrList most = {{"try_recover_truncated", true}, {"acceptable_fraction", 0.9f}};
  EXPECT_EQ(Values<uint8_t>(b_.Op("DecodeJpeg", {cut}, some)).size(), 64u * 16 * 3);
  EXPECT_EQ(ErrorOf(b_.Op("DecodeJpeg", {cut}, most)).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(ImageTest, BoxesOutsideOfTheBatchAreErrors) {
  const Endpoint image = b_.Const(Tensor(DType::kFloat, Shape({1, 2, 2, 1})));
  const Endpoint box = b_.Const(Tensor::Of<float>(Shape({1, 4}), {0, 0, 1, 1}));
  EXPECT_EQ(ErrorOf(b_.Op("CropAndResize", {image, box, b_.Ints({1}), b_.Ints({2, 2})})).code(),
            absl::StatusCode::kOutOfRange);
}

}  // namespace
}  // namespace millrace
