#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "millrace/ops/summary/histogram.h"
#include "tests/ops/run_op.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;

StatusOr<pb::Summary> RunSummary(const std::string& op, const std::vector<Tensor>& inputs, AttrList attrs = {}) {
  MR_ASSIGN_OR_RETURN(const std::vector<Tensor> outputs, RunOp(op, inputs, std::move(attrs)));
  pb::Summary summary;
  if (!summary.ParseFromString(outputs[0].scalar<std::string>())) return DataLoss("no Summary");
  return summary;
}

TEST(Histogram, CountsEveryValueOnceAndAcceptsTheLargest) {
  Histogram histogram;
  const double most = std::numeric_limits<double>::max();
  for (const double v : {-most, -1.0, 0.0, 1e-300, 1.0, most}) histogram.Add(v);
  pb::HistogramProto proto;
  histogram.ToProto(&proto);
  double total = 0;
  for (const double count : proto.bucket()) total += count;
  EXPECT_EQ(total, 6);
  EXPECT_EQ(proto.num(), 6);
  EXPECT_EQ(proto.min(), -most);
  EXPECT_EQ(proto.max(), most);
  EXPECT_EQ(proto.bucket_limit(proto.bucket_limit_size() - 1), most);
}

TEST(HistogramSummary, NamesTheNodeThatSawANan) {
  const auto summary = RunSummary(
      "HistogramSummary", {Tensor::Scalar("h"), Tensor::Of<float>({1, std::numeric_limits<float>::quiet_NaN()})});
  EXPECT_EQ(summary.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(summary.status().message()), HasSubstr("Nan in summary histogram for: HistogramSummary"));
}

TEST(TensorSummary, CarriesTheNodesNameAndTheTensor) {
  const auto summary = RunSummary("TensorSummary", {Tensor::Of<float>({1, 2})});
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_EQ(summary->value(0).node_name(), "TensorSummary");
  EXPECT_EQ(summary->value(0).tensor().dtype(), pb::DT_FLOAT);
}

TEST(ImageSummary, WritesAtMostMaxImagesPngs) {
  const Tensor images(DType::kUInt8, Shape({5, 2, 3, 3}));
  const auto summary = RunSummary("ImageSummary", {Tensor::Scalar("t"), images}, {{"max_images", 2}});
  ASSERT_TRUE(summary.ok()) << summary.status();
  ASSERT_EQ(summary->value_size(), 2);
  EXPECT_EQ(summary->value(1).tag(), "t/image/1");
  EXPECT_EQ(summary->value(1).image().width(), 3);
  EXPECT_EQ(summary->value(1).image().encoded_image_string().substr(1, 3), "PNG");
}

TEST(ImageSummary, PixelsThatAreNotFiniteHaveNoSayInTheScale) {
  const float inf = std::numeric_limits<float>::infinity();
  const Tensor with = Tensor::Of<float>(Shape({1, 1, 2, 1}), {1, inf}),
               without = Tensor::Of<float>(Shape({1, 1, 2, 1}), {1, 1});
  const Tensor white = Tensor::Of<uint8_t>({255});
  const auto a = RunSummary("ImageSummary", {Tensor::Scalar("t"), with}, {{"bad_color", white}});
  const auto b = RunSummary("ImageSummary", {Tensor::Scalar("t"), without}, {{"bad_color", white}});
  ASSERT_TRUE(a.ok() && b.ok()) << a.status() << b.status();
  EXPECT_EQ(a->value(0).image().encoded_image_string(), b->value(0).image().encoded_image_string());
}

TEST(AudioSummary, WritesAtMostMaxOutputsWavs) {
  const Tensor sounds = Tensor::Of<float>(Shape({3, 2}), {0, 0.5, 1, -1, 2, 0});
  const auto summary =
      RunSummary("AudioSummaryV2", {Tensor::Scalar("t"), sounds, Tensor::Scalar(8000.0f)}, {{"max_outputs", 2}});
  ASSERT_TRUE(summary.ok()) << summary.status();
  ASSERT_EQ(summary->value_size(), 2);
  EXPECT_EQ(summary->value(1).tag(), "t/audio/1");
  EXPECT_EQ(summary->value(1).audio().sample_rate(), 8000);
  EXPECT_EQ(summary->value(1).audio().length_frames(), 2);
  const std::string wav = summary->value(1).audio().encoded_audio_string();
  EXPECT_EQ(wav.substr(0, 4), "RIFF");
  EXPECT_EQ(wav.substr(44), std::string("\xff\x7f\x00\x80", 4));  // the largest and the smallest sample
  // The older op has the rate as an attr, and gives the same.
  const auto older =
      RunSummary("AudioSummary", {Tensor::Scalar("t"), sounds}, {{"max_outputs", 2}, {"sample_rate", 8000.0f}});
  ASSERT_TRUE(older.ok()) << older.status();
  EXPECT_EQ(older->SerializeAsString(), summary->SerializeAsString());
  EXPECT_EQ(RunSummary("AudioSummaryV2", {Tensor::Scalar("t"), Tensor::Scalar(1.0f), Tensor::Scalar(8000.0f)})
                .status()
                .code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(MergeSummary, RefusesATagThatComesTwice) {
  pb::Summary summary;
  summary.add_value()->set_tag("loss");
  const Tensor bytes = Tensor::Scalar(summary.SerializeAsString());
  const auto merged = RunSummary("MergeSummary", {bytes, bytes});
  EXPECT_EQ(merged.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(merged.status().message()), HasSubstr("Duplicate tag loss"));
}

}  // namespace
}  // namespace millrace
