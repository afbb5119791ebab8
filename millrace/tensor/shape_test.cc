#include "millrace/tensor/shape.h"

#include <gtest/gtest.h>

#include <vector>

#include "millrace/proto/tensor.pb.h"

namespace millrace {
namespace {

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

TEST(ShapeTest, MakeRefusesWhatNoTensorCanHave) {
  EXPECT_EQ(Shape::Make({2, -1}).status().code(), kInvalid);
  EXPECT_EQ(Shape::Make({int64_t{1} << 32, int64_t{1} << 32}).status().code(), kInvalid);
  // A later zero does not save the partial product.
  EXPECT_EQ(Shape::Make({int64_t{1} << 32, int64_t{1} << 32, 0}).status().code(), kInvalid);
  EXPECT_EQ(Shape::Make(std::vector<int64_t>(255, 1)).status().code(), kInvalid);
  EXPECT_EQ(Shape::Make(std::vector<int64_t>(254, 1)).value().rank(), 254);
  EXPECT_EQ(Shape::Make({3, 0}).value().num_elements(), 0);
}

TEST(ShapeTest, SurvivesTheWayThroughAMessage) {
  for (const Shape& shape : {Shape(), Shape({0}), Shape({2, 3, 5, 7, 11})}) {
    pb::TensorShapeProto proto;
    shape.ToProto(&proto);
    EXPECT_EQ(Shape::FromProto(proto).value(), shape);
    EXPECT_EQ(PartialShape::FromProto(proto).value(), PartialShape(shape));
  }
  for (const PartialShape& shape : {PartialShape(), PartialShape::Scalar(), PartialShape({-1, 3})}) {
    pb::TensorShapeProto proto;
    shape.ToProto(&proto);
    EXPECT_EQ(PartialShape::FromProto(proto).value(), shape);
  }
}

TEST(ShapeTest, MalformedMessagesAreErrors) {
  pb::TensorShapeProto proto;
  proto.set_unknown_rank(true);
  EXPECT_EQ(Shape::FromProto(proto).status().code(), kInvalid);
  proto.add_dim()->set_size(2);
  EXPECT_EQ(PartialShape::FromProto(proto).status().code(), kInvalid);
  proto.set_unknown_rank(false);
  proto.mutable_dim(0)->set_size(-2);
  EXPECT_EQ(PartialShape::FromProto(proto).status().code(), kInvalid);
  proto.mutable_dim(0)->set_size(-1);
  EXPECT_EQ(Shape::FromProto(proto).status().code(), kInvalid);
  for (int i = 0; i < 300; ++i) proto.add_dim()->set_size(1);
  EXPECT_EQ(PartialShape::FromProto(proto).status().code(), kInvalid);
}

TEST(ShapeTest, ToStringIsWhatPeopleWrite) {
  EXPECT_EQ(Shape().ToString(), "[]");
  EXPECT_EQ(Shape({2, 3}).ToString(), "[2,3]");
  EXPECT_EQ(PartialShape().ToString(), "<unknown>");
  EXPECT_EQ(PartialShape({-1, 3}).ToString(), "[?,3]");
}

TEST(PartialShapeTest, MergeKnowsWhatEitherKnows) {
  EXPECT_EQ(PartialShape({-1, 3}).MergeWith(PartialShape({2, -1})).value(), PartialShape({2, 3}));
  EXPECT_EQ(PartialShape().MergeWith(PartialShape({2, -1})).value(), PartialShape({2, -1}));
  EXPECT_EQ(PartialShape({2}).MergeWith(PartialShape()).value(), PartialShape({2}));
  EXPECT_EQ(PartialShape({2}).MergeWith(PartialShape({3})).status().code(), kInvalid);
  EXPECT_EQ(PartialShape({2}).MergeWith(PartialShape({2, 2})).status().code(), kInvalid);
}

TEST(PartialShapeTest, CompatibilityComparesOnlyWhatIsKnown) {
  EXPECT_TRUE(PartialShape().IsCompatibleWith(Shape({1, 2})));
  EXPECT_TRUE(PartialShape({-1, 2}).IsCompatibleWith(Shape({7, 2})));
  EXPECT_FALSE(PartialShape({-1, 2}).IsCompatibleWith(Shape({7, 3})));
  EXPECT_FALSE(PartialShape::Scalar().IsCompatibleWith(Shape({1})));
  EXPECT_TRUE(PartialShape({-1, 2}).IsCompatibleWith(PartialShape({5, -1})));
  EXPECT_EQ(PartialShape({4, 2}).num_elements(), 8);
  EXPECT_EQ(PartialShape({-1, 2}).num_elements(), -1);
  EXPECT_EQ(PartialShape().num_elements(), -1);
}

}  // namespace
}  // namespace millrace
