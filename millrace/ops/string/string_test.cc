#include <algorithm>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "millrace/ops/string/hashes.h"
#include "tests/ops/run_op.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> Strings(const Tensor& t) {
  const auto flat = t.flat<std::string>();
  return {flat.begin(), flat.end()};
}

Tensor Words(std::initializer_list<std::string> words) { return Tensor::Of<std::string>(words); }

TEST(Hashes, HaveTheirPublishedValues) {
  EXPECT_EQ(FarmFingerprint64(""), 0x9ae16a3b2f90404fu);
  EXPECT_EQ(FarmFingerprint64("a"), 0xb3454265b6df75e3u);  // TensorFlow's fingerprint of "a"
  // The test vector of SipHash's authors: key 00..0f, message 00..0e.
  std::string message;
  for (char c = 0; c < 15; ++c) message.push_back(c);
  EXPECT_EQ(SipHash(0x0706050403020100, 0x0f0e0d0c0b0a0908, message), 0xa129ca6149be45e5u);
}

TEST(HashBuckets, OfIntegersAreThoseOfTheirDigits) {
  const auto of_numbers = RunOp("_TensorToHashBucketFast", {Tensor::Of<int8_t>({-128, 0, 7})}, {{"num_buckets", 1000}});
  const auto of_digits = RunOp("StringToHashBucketFast", {Words({"-128", "0", "7"})}, {{"num_buckets", 1000}});
  ASSERT_TRUE(of_numbers.ok() && of_digits.ok()) << of_numbers.status() << of_digits.status();
  EXPECT_TRUE(SameBytes((*of_numbers)[0], (*of_digits)[0]));
}

TEST(StringToNumber, NamesTheFirstBadElementForAnyNumberOfThreads) {
  Tensor numbers(DType::kString, Shape({4096}));
  for (std::string& text : numbers.flat<std::string>()) text = "1.5";
  numbers.data<std::string>()[1000] = "one";
  numbers.data<std::string>()[3000] = "two";
  for (const int threads : {1, 2, 8}) {
    const auto result = RunOp("StringToNumber", {numbers}, {{"out_type", DType::kDouble}}, threads);
    ASSERT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(result.status().message()), HasSubstr("one (element 1000, to double)"));
  }
}

TEST(AsString, RefusesAWidthThatNobodyCanRead) {
  const auto result = RunOp("AsString", {Tensor::Scalar(1.0f)}, {{"width", 2000000000}});
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(Substr, OfNoStringsIsNone) {
  const auto result = RunOp("Substr", {Tensor(DType::kString, Shape({0})), Tensor::Of<int32_t>(Shape({2, 1}), {16, 0}),
                                       Tensor::Of<int32_t>(Shape({2, 1}), {16, 0})});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ((*result)[0].shape(), Shape({2, 0}));
}

TEST(StringNGrams, PadsAndKeepsShortSequences) {
  const auto result = RunOp("StringNGrams", {Words({"a", "b", "c", "d"}), Tensor::Of<int64_t>({0, 3, 3, 4})},
                            {{"separator", "|"},
                             {"ngram_widths", std::vector<int64_t>{2}},
                             {"left_pad", "<"},
                             {"right_pad", ">"},
                             {"pad_width", 0},
                             {"preserve_short_sequences", true}});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(Strings((*result)[0]), ElementsAre("a|b", "b|c", "d"));
  EXPECT_THAT((*result)[1].flat<int64_t>(), ElementsAre(0, 2, 2, 3));
}

TEST(StringNGrams, RefusesWidthsThatWouldFillTheMemory) {
  const auto result = RunOp("StringNGrams", {Words({"a"}), Tensor::Of<int64_t>({0, 1})},
                            {{"separator", ""},
                             {"ngram_widths", std::vector<int64_t>{2000000000}},
                             {"left_pad", "<"},
                             {"right_pad", ">"},
                             {"pad_width", -1},
                             {"preserve_short_sequences", false}});
  EXPECT_EQ(result.status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(UnsortedSegmentJoin, JoinsRowsAndChecksIds) {
  const Tensor words = Tensor::Of<std::string>(Shape({2, 2}), {"a", "b", "c", "d"});
  const auto result = RunOp("UnsortedSegmentJoin", {words, Tensor::Of<int32_t>({1, 1}), Tensor::Scalar<int32_t>(2)},
                            {{"separator", "-"}});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(Strings((*result)[0]), ElementsAre("", "", "a-c", "b-d"));
  const auto bad = RunOp("UnsortedSegmentJoin", {words, Tensor::Of<int32_t>({1, 2}), Tensor::Scalar<int32_t>(2)});
  EXPECT_EQ(bad.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(bad.status().message()), HasSubstr("segment_ids[1] = 2"));
}

TEST(Regex, ManyStringsGiveTheSameForAnyNumberOfThreads) {
  Tensor words(DType::kString, Shape({5000}));
  for (int64_t i = 0; i < 5000; ++i) words.data<std::string>()[i] = absl::StrCat("word", i, "x", i % 7);
  std::vector<std::string> first;
  for (const int threads : {1, 2, 8}) {
    const auto result =
        RunOp("RegexReplace", {words, Tensor::Scalar("([0-9]+)x"), Tensor::Scalar("<\\1>")}, {}, threads);
    ASSERT_TRUE(result.ok()) << result.status();
    if (first.empty()) first = Strings((*result)[0]);
    EXPECT_EQ(Strings((*result)[0]), first);
  }
  EXPECT_EQ(first[4999], "word<4999>1");
}

TEST(Substr, PositionsAtTheLimitsAreErrorsNotOverflows) {
  for (const char* unit : {"BYTE", "UTF8_CHAR"}) {
    for (const int64_t pos : {INT64_MIN, INT64_MAX}) {
      const auto result =
          RunOp("Substr", {Words({"abc"}), Tensor::Scalar(pos), Tensor::Scalar<int64_t>(INT64_MAX)}, {{"unit", unit}});
      EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument) << unit << " " << pos;
    }
  }
}

TEST(Unicode, MalformedTextIsAnErrorIfStrictAndEncodingsMustExist) {
  const auto transcode = [](const std::string& text, const char* from, const char* errors) {
    return RunOp("UnicodeTranscode", {Words({text})},
                 {{"input_encoding", from}, {"output_encoding", "UTF-8"}, {"errors", errors}});
  };
  EXPECT_THAT(transcode("a\xff", "UTF-8", "strict").status().ToString(), HasSubstr("Invalid formatting"));
  EXPECT_THAT(transcode("a", "none", "strict").status().ToString(), HasSubstr("input encoding: none"));
  const auto ignored = transcode(
      "a\xff"
      "b",
      "UTF-8", "ignore");
  ASSERT_TRUE(ignored.ok()) << ignored.status();
  EXPECT_THAT(Strings((*ignored)[0]), ElementsAre("ab"));
  const auto encoded = RunOp("UnicodeEncode", {Tensor::Of<int32_t>({0xD83D}), Tensor::Of<int64_t>({0, 1})},
                             {{"output_encoding", "UTF-8"}, {"errors", "strict"}});
  EXPECT_EQ(encoded.status().code(), absl::StatusCode::kInvalidArgument);
  const auto beyond =
      RunOp("UnicodeEncode", {Tensor::Of<int32_t>({65}), Tensor::Of<int64_t>({0, 5})}, {{"output_encoding", "UTF-8"}});
  EXPECT_THAT(beyond.status().ToString(), HasSubstr("input_splits"));
}

}  // namespace
}  // namespace millrace
