#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "millrace/graph/gradient.h"
#include "millrace/ops/list/tensor_list.h"
#include "tests/ops/op_session.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ListTest : public OpSessionTest {
 protected:
  const AttrList kFloat = {{"element_dtype", DType::kFloat}};

  Endpoint Any() { return b_.Scalar<int32_t>(-1); }
  Endpoint Empty(int32_t limit = -1) { return b_.Op("EmptyTensorList", {Any(), b_.Scalar<int32_t>(limit)}, kFloat); }
  Endpoint Push(Endpoint list, Endpoint x) { return b_.Op("TensorListPushBack", {list, x}, kFloat); }
  Endpoint Vector(std::vector<float> values) { return b_.Const(Tensor::FromVector(values)); }
  Endpoint Stack(Endpoint list) { return b_.Op("TensorListStack", {list, Any()}, kFloat); }
  Endpoint Rows() {
    return b_.Op("TensorListFromTensor", {b_.Const(Tensor::Of<float>(Shape({3, 2}), {1, 2, 3, 4, 5, 6})), Any()},
                 kFloat);
  }
  Status ErrorOf(Endpoint e) { return Fetch({e}).status(); }
};

TEST_F(ListTest, AListIsAValue) {
  const Endpoint one = Push(Empty(), Vector({1, 2}));
  const Endpoint a = Push(one, Vector({3, 4})), b = Push(one, Vector({5, 6}));
  EXPECT_THAT(Values<float>(Stack(a)), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(Values<float>(Stack(b)), ElementsAre(1, 2, 5, 6));
  EXPECT_THAT(Values<float>(Stack(one)), ElementsAre(1, 2));
}

TEST_F(ListTest, AMapIsAValueWhoseKeysMustExist) {
  const AttrList types = {{"key_dtype", DType::kFloat}, {"value_dtype", DType::kFloat}};
  const Endpoint empty = b_.Op("EmptyTensorMap", {});
  const auto size = [&](Endpoint map) { return Values<int32_t>(b_.Op("TensorMapSize", {map})); };
  const auto at = [&](Endpoint map, Endpoint key) { return b_.Op("TensorMapLookup", {map, key}, types); };
  const Endpoint one = b_.Op("TensorMapInsert", {empty, Vector({1}), Vector({10})}, types);
  const Endpoint two = b_.Op("TensorMapInsert", {one, Vector({2}), Vector({20})}, types);
  const Endpoint other = b_.Op("TensorMapInsert", {one, Vector({1}), Vector({30})}, types);
  EXPECT_THAT(size(one), ElementsAre(1));
  EXPECT_THAT(size(two), ElementsAre(2));
  EXPECT_THAT(Values<float>(at(two, Vector({1}))), ElementsAre(10));
  EXPECT_THAT(Values<float>(at(other, Vector({1}))), ElementsAre(30));
  EXPECT_THAT(ErrorOf(at(one, Vector({2}))).ToString(), HasSubstr("non-existent key"));
  EXPECT_THAT(ErrorOf(b_.Op("TensorMapErase", {one, Vector({2})}, types)).ToString(), HasSubstr("non-existent item"));
  EXPECT_THAT(ErrorOf(b_.Op("TensorMapStackKeys", {empty}, {{"key_dtype", DType::kFloat}})).ToString(),
              HasSubstr("empty map"));
  EXPECT_THAT(ErrorOf(b_.Op("TensorMapStackKeys", {one}, {{"key_dtype", DType::kInt32}})).ToString(),
              HasSubstr("requested dtype"));
  const Endpoint zeros = b_.Op("ZerosLike", {two});
  EXPECT_THAT(Values<float>(at(b_.Op("AddN", {two, two, zeros}), Vector({2}))), ElementsAre(40));
}

TEST_F(ListTest, WhatIsNotSetIsZero) {
  const Endpoint list = b_.Op("TensorListReserve", {b_.Ints({2}), b_.Scalar<int32_t>(3)}, kFloat);
  const Endpoint set = b_.Op("TensorListSetItem", {list, b_.Scalar<int32_t>(1), Vector({7, 8})}, kFloat);
  EXPECT_THAT(Values<float>(Stack(set)), ElementsAre(0, 0, 7, 8, 0, 0));
  EXPECT_THAT(Values<float>(b_.Op("TensorListGetItem", {set, b_.Scalar<int32_t>(2), Any()}, kFloat)),
              ElementsAre(0, 0));
  const Endpoint unknown = b_.Op("TensorListReserve", {Any(), b_.Scalar<int32_t>(1)}, kFloat);
  EXPECT_EQ(ErrorOf(b_.Op("TensorListGetItem", {unknown, b_.Scalar<int32_t>(0), Any()}, kFloat)).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(ListTest, BadUseIsAnError) {
  const Endpoint list = Push(Empty(1), Vector({1, 2}));
  EXPECT_THAT(ErrorOf(Stack(Push(list, Vector({1})))).ToString(), HasSubstr("full list"));
  EXPECT_THAT(ErrorOf(b_.Op("TensorListGetItem", {list, b_.Scalar<int32_t>(5), Any()}, kFloat)).ToString(),
              HasSubstr("element 5 in a list with 1"));
  EXPECT_THAT(
      ErrorOf(b_.Op("TensorListGetItem", {list, b_.Scalar<int32_t>(0), Any()}, {{"element_dtype", DType::kInt32}}))
          .ToString(),
      HasSubstr("Invalid data types"));
  Node* pop = b_.AddNode("TensorListPopBack", {Empty(), Any()}, kFloat);
  EXPECT_THAT(ErrorOf(pop->output(1)).ToString(), HasSubstr("empty list"));
  EXPECT_THAT(ErrorOf(b_.Op("TensorListReserve", {Any(), b_.Scalar<int32_t>(-3)}, kFloat)).ToString(),
              HasSubstr("non negative"));
  EXPECT_THAT(ErrorOf(Stack(Push(Push(Empty(), Vector({1})), Vector({1, 2})))).ToString(),
              HasSubstr("different shapes"));
  EXPECT_THAT(ErrorOf(b_.Op("TensorListLength", {b_.Op("_EmptyHistory", std::vector<Endpoint>{})})).ToString(),
              HasSubstr("not a list"));
}

TEST_F(ListTest, AnOptionalHasAValueOrNone) {
  const AttrList wanted = {{"output_types", std::vector<DType>{DType::kFloat, DType::kInt32}},
                           {"output_shapes", std::vector<PartialShape>{PartialShape({2}), PartialShape::Scalar()}}};
  const Endpoint some = b_.Op("OptionalFromValue", {Vector({1, 2}), b_.Scalar<int32_t>(7)});
  const Endpoint none = b_.Op("OptionalNone", std::vector<Endpoint>{});
  EXPECT_THAT(Values<bool>(b_.Op("OptionalHasValue", {some})), ElementsAre(true));
  EXPECT_THAT(Values<bool>(b_.Op("OptionalHasValue", {none})), ElementsAre(false));
  Node* const get = b_.AddNode("OptionalGetValue", {some}, wanted);
  EXPECT_THAT(Values<float>(get->output(0)), ElementsAre(1, 2));
  EXPECT_THAT(Values<int32_t>(get->output(1)), ElementsAre(7));
  EXPECT_THAT(ErrorOf(b_.Op("OptionalGetValue", {none}, wanted)).ToString(), HasSubstr("does not have a value"));
  const AttrList others = {{"output_types", std::vector<DType>{DType::kFloat, DType::kFloat}},
                           {"output_shapes", std::vector<PartialShape>{PartialShape(), PartialShape()}}};
  EXPECT_THAT(ErrorOf(b_.Op("OptionalGetValue", {some}, others)).ToString(),
              HasSubstr("expected type for component 1"));
  EXPECT_THAT(ErrorOf(b_.Op("OptionalHasValue", {Empty()})).ToString(), HasSubstr("not an Optional"));
  const Endpoint sum = b_.Op("AddN", std::vector<Endpoint>{some, some, b_.Op("ZerosLike", {some})});
  EXPECT_THAT(Values<float>(b_.Op("OptionalGetValue", {sum}, wanted)), ElementsAre(2, 4));
}

TEST_F(ListTest, GatherScatterAndResize) {
  EXPECT_THAT(Values<float>(b_.Op("TensorListGather", {Rows(), b_.Ints({2, 0}), Any()}, kFloat)),
              ElementsAre(5, 6, 1, 2));
  const Endpoint x = b_.Const(Tensor::Of<float>(Shape({2, 1}), {1, 2}));
  EXPECT_THAT(Values<float>(Stack(b_.Op("TensorListScatter", {x, b_.Ints({3, 1}), Any()}, kFloat))),
              ElementsAre(0, 2, 0, 1));
  EXPECT_THAT(
      Values<float>(Stack(b_.Op("TensorListScatterV2", {x, b_.Ints({0, 1}), Any(), b_.Scalar<int32_t>(3)}, kFloat))),
      ElementsAre(1, 2, 0));
  EXPECT_EQ(ErrorOf(b_.Op("TensorListScatterV2", {x, b_.Ints({0, 5}), Any(), b_.Scalar<int32_t>(3)}, kFloat)).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ErrorOf(b_.Op("TensorListScatter", {x, b_.Ints({0, -5}), Any()}, kFloat)).code(),
            absl::StatusCode::kInvalidArgument);
  const Endpoint two = b_.Const(Tensor::Of<float>(Shape({1, 2}), {8, 9}));
  EXPECT_THAT(Values<float>(Stack(b_.Op("TensorListScatterIntoExistingList", {Rows(), two, b_.Ints({3})}, kFloat))),
              ElementsAre(1, 2, 3, 4, 5, 6, 8, 9));
  EXPECT_THAT(Values<float>(Stack(b_.Op("TensorListResize", {Rows(), b_.Scalar<int32_t>(1)}))), ElementsAre(1, 2));
  EXPECT_THAT(Values<int32_t>(b_.Op("TensorListElementShape", {Rows()}, {{"shape_type", DType::kInt32}})),
              ElementsAre(-1));
}

TEST_F(ListTest, ConcatAndSplit) {
  const Endpoint list = Push(Push(Empty(), Vector({1, 2, 3})), Vector({4}));
  Node* joined = b_.AddNode("TensorListConcat", {list}, kFloat);
  EXPECT_THAT(Values<float>(joined->output(0)), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(Values<int64_t>(joined->output(1)), ElementsAre(3, 1));
  const Endpoint x = Vector({1, 2, 3, 4});
  const Endpoint cut = b_.Op("TensorListSplit", {x, Any(), b_.Const(Tensor::Of<int64_t>({1, 3}))}, kFloat);
  EXPECT_THAT(Values<float>(b_.Op("TensorListGetItem", {cut, b_.Scalar<int32_t>(1), Any()}, kFloat)),
              ElementsAre(2, 3, 4));
  EXPECT_EQ(ErrorOf(b_.Op("TensorListSplit", {x, Any(), b_.Const(Tensor::Of<int64_t>({1, 9}))}, kFloat)).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Values<float>(Stack(b_.Op("TensorListConcatLists", {Rows(), Rows()}, kFloat))),
              ElementsAre(1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6));
  const Endpoint reserved = b_.Op("TensorListReserve", {b_.Ints({2}), b_.Scalar<int32_t>(2)}, kFloat);
  Node* zeros = b_.AddNode("TensorListConcatV2", {reserved, Any(), b_.Const(Tensor::Of<int64_t>({2, 2}))}, kFloat);
  EXPECT_THAT(Values<float>(zeros->output(0)), ElementsAre(0, 0, 0, 0));
  const Endpoint handles = b_.Op("Pack", {Empty(), Empty()});
  const Endpoint pushed = b_.Op("TensorListPushBackBatch", {handles, Vector({1, 2})}, kFloat);
  EXPECT_TRUE(Fetch({pushed}).ok());
}

TEST_F(ListTest, TravelsAsBytes) {
  TensorList list;
  list.element_dtype = DType::kFloat;
  list.element_shape = PartialShape({-1});
  list.tensors = {Tensor::Of<float>({1, 2}), Tensor(), Tensor::Of<float>({3})};
  std::string metadata;
  std::vector<Tensor> tensors;
  ASSERT_TRUE(list.Encode(&metadata, &tensors).ok());
  const StatusOr<Variant> back = VariantDecoder::Run("tensorflow::TensorList", metadata, tensors);
  ASSERT_TRUE(back.ok()) << back.status();
  const TensorList* same = back->Get<TensorList>();
  ASSERT_NE(same, nullptr);
  ASSERT_EQ(same->tensors.size(), 3);
  EXPECT_FALSE(same->tensors[1].IsInitialized());
  EXPECT_EQ(same->tensors[2].scalar<float>(), 3);
  for (size_t n = 0; n < metadata.size(); ++n) {
    VariantDecoder::Run("tensorflow::TensorList", metadata.substr(0, n), tensors).status().IgnoreError();
  }
}

TEST_F(ListTest, GradientsFlowThroughLists) {
  const Endpoint x = Vector({1, 2}), y = Vector({3, 4});
  const Endpoint list = Push(Push(Empty(), x), b_.Mul(x, y));
  const Endpoint set = b_.Op("TensorListSetItem", {list, b_.Scalar<int32_t>(0), b_.Mul(y, y)}, kFloat);
  const Endpoint first = b_.Op("TensorListGetItem", {list, b_.Scalar<int32_t>(0), Any()}, kFloat);
  const Endpoint loss = b_.Add(b_.Op("Sum", {Stack(set), b_.Ints({0})}), first);
  const auto grads = AddGradients(b_.graph(), {loss}, {x, y});
  ASSERT_TRUE(grads.ok()) << grads.status();
  // x y + y y + x
  EXPECT_THAT(Values<float>((*grads)[0].dense), ElementsAre(4, 5));
  EXPECT_THAT(Values<float>((*grads)[1].dense), ElementsAre(7, 10));
}

}  // namespace
}  // namespace millrace
