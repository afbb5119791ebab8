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
