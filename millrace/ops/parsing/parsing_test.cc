#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "millrace/proto/example.pb.h"
#include "millrace/tensor/tensor_proto.h"
#include "tests/ops/run_op.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> Strings(const Tensor& t) {
  const auto flat = t.flat<std::string>();
  return {flat.begin(), flat.end()};
}

Tensor NoStrings() { return Tensor(DType::kString, Shape({0})); }

// Example i has i % 5 floats, two int64s and a string.
Tensor ManyExamples(int64_t n) {
  Tensor serialized(DType::kString, Shape({n}));
  for (int64_t i = 0; i < n; ++i) {
    pb::Example example;
    auto& features = *example.mutable_features()->mutable_feature();
    for (int64_t k = 0; k < i % 5; ++k) features["f"].mutable_float_list()->add_value(static_cast<float>(i * 10 + k));
    features["i"].mutable_int64_list()->add_value(i);
    features["i"].mutable_int64_list()->add_value(-i);
    features["s"].mutable_bytes_list()->add_value(absl::StrCat("example number ", i));
    serialized.data<std::string>()[i] = example.SerializeAsString();
  }
  return serialized;
}

StatusOr<std::vector<Tensor>> ParseMany(const Tensor& serialized, int threads) {
  return RunOp("ParseExampleV2",
               {serialized, NoStrings(), Tensor::Of<std::string>({"f"}), Tensor::Of<std::string>({"i"}),
                Tensor::Of<std::string>({"s"}), Tensor(DType::kInt64, Shape({0}))},
               {{"num_sparse", 1},
                {"sparse_types", std::vector<DType>{DType::kFloat}},
                {"ragged_value_types", std::vector<DType>{DType::kString}},
                {"ragged_split_types", std::vector<DType>{DType::kInt32}},
                {"dense_shapes", std::vector<PartialShape>{PartialShape({2})}}},
               threads);
}

TEST(ParseExample, LargeBatchIsTheSameForAnyNumberOfThreads) {
  const Tensor serialized = ManyExamples(3000);
  for (const int threads : {1, 2, 8}) {
    const auto parsed = ParseMany(serialized, threads);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    const Tensor &indices = (*parsed)[0], &values = (*parsed)[1], &dense = (*parsed)[3], &ragged = (*parsed)[4];
    ASSERT_EQ(values.num_elements(), 6000);
    for (int64_t i = 0, at = 0; i < 3000; ++i) {
      for (int64_t k = 0; k < i % 5; ++k, ++at) {
        ASSERT_EQ(indices.data<int64_t>()[2 * at], i);
        ASSERT_EQ(indices.data<int64_t>()[2 * at + 1], k);
        ASSERT_EQ(values.data<float>()[at], static_cast<float>(i * 10 + k));
      }
      ASSERT_EQ(dense.data<int64_t>()[2 * i + 1], -i);
      ASSERT_EQ(ragged.data<std::string>()[i], absl::StrCat("example number ", i));
    }
    EXPECT_THAT((*parsed)[2].flat<int64_t>(), ElementsAre(3000, 4));
    EXPECT_EQ((*parsed)[5].data<int32_t>()[3000], 3000);
  }
}

TEST(ParseExample, ErrorIsThatOfTheFirstBadExample) {
  Tensor serialized = ManyExamples(3000);
  serialized.data<std::string>()[2900] = "\xff\xff";
  pb::Example wrong;
  (*wrong.mutable_features()->mutable_feature())["i"].mutable_float_list()->add_value(1);
  serialized.data<std::string>()[1234] = wrong.SerializeAsString();
  for (const int threads : {1, 2, 8}) {
    const Status status = ParseMany(serialized, threads).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("Key: i, Index: 1234."));
    EXPECT_THAT(std::string(status.message()), HasSubstr("Expected type: int64, Actual type: float"));
  }
}

TEST(ParseExample, TruncatedBytesAreRefusedWhereverTheyEnd) {
  const Tensor whole = ManyExamples(5);
  const std::string bytes = whole.data<std::string>()[4];
  int refused = 0;
  for (size_t n = 0; n < bytes.size(); ++n) {
    const Tensor cut = Tensor::Of<std::string>({bytes.substr(0, n)});
    const Status status = ParseMany(cut, 1).status();
    refused += status.ok() ? 0 : 1;
    EXPECT_TRUE(status.ok() || status.code() == absl::StatusCode::kInvalidArgument) << status;
  }
  EXPECT_EQ(refused, static_cast<int>(bytes.size()));  // "i" is required, so even no bytes at all are too few
}

// An entry of the map of features as old or unusual writers write it.
std::string Entry(const std::string& key, const std::string& feature) {
  std::string entry = absl::StrCat("\x0a", std::string(1, static_cast<char>(key.size())), key);
  absl::StrAppend(&entry, "\x12", std::string(1, static_cast<char>(feature.size())), feature);
  return absl::StrCat("\x0a", std::string(1, static_cast<char>(entry.size())), entry);
}
// An Example of such entries.
std::string ExampleOf(const std::vector<std::string>& entries) {
  const std::string all = absl::StrJoin(entries, "");
  return absl::StrCat("\x0a", std::string(1, static_cast<char>(all.size())), all);
}

// Sparse f (float), i (int64) and s (string) of a batch.
StatusOr<std::vector<Tensor>> ParseSparse(const std::vector<std::string>& examples) {
  Tensor serialized(DType::kString, Shape({static_cast<int64_t>(examples.size())}));
  std::copy(examples.begin(), examples.end(), serialized.data<std::string>());
  return RunOp("ParseExampleV2",
               {serialized, NoStrings(), Tensor::Of<std::string>({"f", "i", "s"}), NoStrings(), NoStrings()},
               {{"num_sparse", 3},
                {"sparse_types", std::vector<DType>{DType::kFloat, DType::kInt64, DType::kString}},
                {"Tdense", std::vector<DType>{}},
                {"ragged_value_types", std::vector<DType>{}},
                {"ragged_split_types", std::vector<DType>{}},
                {"dense_shapes", std::vector<PartialShape>{}}});
}

TEST(ParseExample, EveryFormOfAFeatureIsRead) {
  const std::string one("\x12\x06\x0a\x04\x00\x00\x80\x3f", 8), none("\x12\x00", 2),
      unpacked("\x12\x0a\x0d\x00\x00\x80\x3f\x0d\x00\x00\x00\x40", 12),
      in_two("\x12\x0c\x0a\x04\x00\x00\x80\x3f\x0a\x04\x00\x00\x00\x40", 14);
  const std::string number("\x1a\x04\x0a\x02\x96\x01", 6), numbers("\x1a\x05\x0a\x03\x05\x96\x01", 7),
      loose("\x1a\x02\x08\x07", 4);
  const std::string text("\x0a\x04\x0a\x02hi", 6), texts(
                                                       "\x0a\x06\x0a\x01"
                                                       "a\x0a\x01"
                                                       "b",
                                                       8);
  const auto parsed = ParseSparse({
      ExampleOf({Entry("f", one), Entry("i", number), Entry("s", text)}),
      ExampleOf({Entry("s", texts), Entry("other", one), Entry("i", numbers), Entry("f", in_two)}),
      ExampleOf({Entry("i", loose), Entry("s", "")}),
      ExampleOf({Entry("s", text), Entry("f", unpacked), Entry("s", texts)}),  // the last one counts
      ExampleOf({Entry("f", one), Entry("f", none)}),
      "",
  });
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_THAT((*parsed)[0].flat<int64_t>(), ElementsAre(0, 0, 1, 0, 1, 1, 3, 0, 3, 1));
  EXPECT_THAT((*parsed)[3].flat<float>(), ElementsAre(1, 1, 2, 1, 2));
  EXPECT_THAT((*parsed)[4].flat<int64_t>(), ElementsAre(150, 5, 150, 7));
  EXPECT_THAT((*parsed)[1].flat<int64_t>(), ElementsAre(0, 0, 1, 0, 1, 1, 2, 0));
  EXPECT_THAT(Strings((*parsed)[5]), ElementsAre("hi", "a", "b", "a", "b"));
  EXPECT_THAT((*parsed)[8].flat<int64_t>(), ElementsAre(6, 2));
}

TEST(ParseExample, WhatLooksShortAndIsNotValidIsRefused) {
  const std::string good("\x12\x06\x0a\x04\x00\x00\x80\x3f", 8);
  for (const std::string& bad : {std::string("\x12\x05\x0a\x03\x00\x00\x80", 7),       // three bytes of floats
                                 std::string("\x1a\x04\x0a\x02\x96\x81", 6),           // an integer without an end
                                 std::string("\x22\x04\x0a\x02hi", 6),                 // a list of another kind
                                 std::string("\x12\x07\x0a\x04\x00\x00\x80\x3f", 8)})  // longer than its entry
  {
    for (const char* key : {"f", "i"}) {
      const Status status = ParseSparse({ExampleOf({Entry("f", good)}), ExampleOf({Entry(key, bad)})}).status();
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << key;
      EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("Key: ", key)));
    }
  }
}

TEST(ParseExample, OrderAndGapsOfTheKeysDoNotMatter) {
  std::vector<std::string> keys;
  for (int i = 0; i < 20; ++i) keys.push_back(absl::StrCat(std::string(static_cast<size_t>(i), 'k'), i));
  Tensor serialized(DType::kString, Shape({50}));
  Tensor wanted(DType::kString, Shape({20})), no_value = Tensor::Of<int64_t>({1}, {-1});
  std::copy(keys.begin(), keys.end(), wanted.data<std::string>());
  std::vector<int64_t> expected;
  for (int64_t e = 0; e < 50; ++e) {
    std::vector<std::string> entries(20);
    for (int64_t k = 0; k < 20; ++k) {
      const bool there = e == 0 || (e * 7 + k * 3) % 5 < 3;
      expected.push_back(there ? (e * k) % 100 : -1);
      // Odd examples have their keys in another order.
      const std::string value = absl::StrCat("\x1a\x03\x0a\x01", std::string(1, static_cast<char>((e * k) % 100)));
      if (there)
        entries[static_cast<size_t>(e % 2 == 0 ? k : (k * 7 + e) % 20)] = Entry(keys[static_cast<size_t>(k)], value);
    }
    // The map in pieces, each of which has a length of one byte.
    for (const std::string& entry : entries) absl::StrAppend(&serialized.data<std::string>()[e], ExampleOf({entry}));
  }
  std::vector<Tensor> inputs = {serialized, NoStrings(), NoStrings(), wanted, NoStrings()};
  inputs.insert(inputs.end(), 20, no_value);
  const auto parsed = RunOp("ParseExampleV2", inputs,
                            {{"num_sparse", 0},
                             {"sparse_types", std::vector<DType>{}},
                             {"ragged_value_types", std::vector<DType>{}},
                             {"ragged_split_types", std::vector<DType>{}},
                             {"dense_shapes", std::vector<PartialShape>(20, PartialShape({1}))}});
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  for (int64_t e = 0; e < 50; ++e) {
    for (int64_t k = 0; k < 20; ++k) {
      EXPECT_EQ((*parsed)[static_cast<size_t>(k)].data<int64_t>()[e], expected[static_cast<size_t>(e * 20 + k)])
          << e << " " << k;
    }
  }
}

TEST(ParseExample, CountsOfAttrsThatContradictEachOtherAreAnError) {
  const auto parsed = RunOp("ParseSequenceExampleV2",
                            {Tensor::Of<std::string>({""}), NoStrings(), NoStrings(), NoStrings(), NoStrings(),
                             NoStrings(), NoStrings(), NoStrings(), Tensor(DType::kBool, Shape({0}))},
                            {{"Nfeature_list_dense", 3}, {"Tcontext_dense", std::vector<DType>{}}});
  EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(DecodePaddedRaw, CutsPadsAndTurnsBytesAround) {
  const Tensor bytes = Tensor::Of<std::string>({std::string("\1\2\3", 3), std::string("\1\2\3\4\5\6", 6)});
  const auto result = RunOp("DecodePaddedRaw", {bytes, Tensor::Scalar<int32_t>(4)},
                            {{"out_type", DType::kInt16}, {"little_endian", false}});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT((*result)[0].flat<int16_t>(), ElementsAre(0x0102, 0x0300, 0x0102, 0x0304));
}

TEST(DecodeJSONExample, GivesBytesThatParse) {
  const auto result =
      RunOp("DecodeJSONExample", {Tensor::Scalar(R"({"features":{"feature":{"x":{"int64List":{"value":[7]}}}}})")});
  ASSERT_TRUE(result.ok()) << result.status();
  pb::Example example;
  ASSERT_TRUE(example.ParseFromString((*result)[0].scalar<std::string>()));
  EXPECT_EQ(example.features().feature().at("x").int64_list().value(0), 7);
  EXPECT_EQ(RunOp("DecodeJSONExample", {Tensor::Scalar("{")}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(SerializeSparse, RowsComeBackAsTheyWere) {
  const Tensor indices = Tensor::Of<int64_t>(Shape({3, 2}), {0, 1, 2, 0, 2, 3}), shape = Tensor::Of<int64_t>({3, 4});
  for (const DType packed : {DType::kString, DType::kVariant}) {
    Graph graph;
    GraphBuilder b(&graph);
    const Endpoint many = b.Op("SerializeManySparse",
                               {b.Const(indices), b.Const(Tensor::Of<std::string>({"a", "b", "c"})), b.Const(shape)},
                               {{"out_type", packed}});
    Node* back = b.AddNode("DeserializeSparse", {many}, {{"dtype", DType::kString}});
    ASSERT_TRUE(b.ok()) << b.status();
    auto session = Session::Create({});
    ASSERT_TRUE(session.ok() && (*session)->Extend(graph).ok());
    const auto result = (*session)->Run({}, {back->output(0).name(), back->output(1).name(), back->output(2).name()});
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_TRUE(SameBytes((*result)[0], indices));
    EXPECT_THAT(Strings((*result)[1]), ElementsAre("a", "b", "c"));
    EXPECT_TRUE(SameBytes((*result)[2], shape));
  }
}

TEST(DeserializeSparse, PartsThatContradictEachOtherAreErrors) {
  const auto bytes = [](const Tensor& t) {
    pb::TensorProto proto;
    TensorToProto(t, &proto);
    return proto.SerializeAsString();
  };
  const std::string indices = bytes(Tensor::Of<int64_t>(Shape({2, 1}), {0, 1})), one = bytes(Tensor::Of<float>({1})),
                    shape = bytes(Tensor::Of<int64_t>({4}));
  for (const Tensor& bad :
       {Tensor::Of<std::string>({indices, one, shape}), Tensor::Of<std::string>({one, one, shape}),
        Tensor::Of<std::string>({indices, "junk", shape}), Tensor::Of<std::string>({indices, one, one})}) {
    EXPECT_EQ(RunOp("DeserializeSparse", {bad}, {{"dtype", DType::kFloat}}).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace millrace
