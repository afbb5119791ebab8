// What the golden cases do not reach: rarer ops, errors, and sizes that are spread over threads.
#include <algorithm>
#include <limits>
#include <numeric>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "millrace/graph/gradient.h"
#include "millrace/graph/graph_builder.h"
#include "millrace/session/session.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Feeds `inputs` to one node and fetches all its outputs. The inputs' shapes are unknown to the graph, so
// it is the kernel that answers.
StatusOr<std::vector<Tensor>> RunOp(const std::string& op, const std::vector<Tensor>& inputs, AttrList attrs = {}) {
  Graph graph;
  GraphBuilder b(&graph);
  std::vector<Endpoint> ends;
  std::vector<Feed> feeds;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::string name = absl::StrCat("in", i);
    ends.push_back(Endpoint{b.AddNode("Placeholder", {}, {{"dtype", inputs[i].dtype()}}, name), 0});
    feeds.emplace_back(name, inputs[i]);
  }
  Node* node = b.AddNode(op, ends, std::move(attrs), "op");
  MR_RETURN_IF_ERROR(b.status());
  MR_ASSIGN_OR_RETURN(std::unique_ptr<Session> session, Session::Create());
  MR_RETURN_IF_ERROR(session->Extend(graph));
  std::vector<std::string> fetches;
  for (int i = 0; i < node->num_outputs(); ++i) fetches.push_back(absl::StrCat("op:", i));
  return session->Run(feeds, fetches);
}

Status ErrorOf(const std::string& op, const std::vector<Tensor>& inputs, AttrList attrs = {}) {
  return RunOp(op, inputs, std::move(attrs)).status();
}

// The gradient of the only output, weighted by `weights`, for input `i`.
StatusOr<Tensor> GradientOf(const std::string& op, const std::vector<Tensor>& inputs, int i, const Tensor& weights,
                            AttrList attrs = {}) {
  Graph graph;
  GraphBuilder b(&graph);
  std::vector<Endpoint> ends;
  for (const Tensor& input : inputs) ends.push_back(b.Const(input, "in"));
  const Endpoint y = b.Op(op, ends, std::move(attrs), "op");
  GradientOptions options;
  options.grad_ys = {Grad(b.Const(weights, "weights"))};
  MR_RETURN_IF_ERROR(b.status());
  MR_ASSIGN_OR_RETURN(std::vector<Grad> grads, AddGradients(&graph, {y}, {ends[i]}, options));
  if (grads[0].IsNone()) return NotFound("there is no gradient");
  const Endpoint dense = Densify(b, grads[0]);
  MR_RETURN_IF_ERROR(b.status());
  MR_ASSIGN_OR_RETURN(std::unique_ptr<Session> session, Session::Create());
  MR_RETURN_IF_ERROR(session->Extend(graph));
  MR_ASSIGN_OR_RETURN(std::vector<Tensor> results, session->Run({dense.name()}));
  return results[0];
}

template <typename T>
std::vector<T> Values(const Tensor& t) {
  return std::vector<T>(t.data<T>(), t.data<T>() + t.num_elements());
}

Tensor Count(Shape shape) {
  Tensor t(DType::kFloat, shape);
  std::iota(t.data<float>(), t.data<float>() + t.num_elements(), 1.0f);
  return t;
}

TEST(DynamicStitch, RefusesNegativeIndices) {
  const Status error = ErrorOf("DynamicStitch", {Tensor::Of<int32_t>({-1000}), Tensor::Of<float>({1})}, {{"N", 1}});
  EXPECT_THAT(std::string(error.message()), HasSubstr("out of range"));
}

TEST(Array, AnEmptyTensorIsReshapedByTheDimensionsThatAreNotZero) {
  const Tensor to = Tensor::Of<int32_t>({-1, 0});
  const auto empty = RunOp("Reshape", {Tensor(DType::kFloat, Shape({2, 3, 0})), to});
  ASSERT_TRUE(empty.ok()) << empty.status();
  EXPECT_EQ((*empty)[0].shape(), Shape({6, 0}));
  EXPECT_FALSE(RunOp("Reshape", {Tensor::Of<float>({1, 2}), to}).ok());
}

TEST(Array, ConjugateTransposeNegatesImaginaryParts) {
  using C = std::complex<float>;
  const auto out =
      RunOp("ConjugateTranspose", {Tensor::Of<C>(Shape({1, 2}), {{1, 2}, {3, -1}}), Tensor::Of<int32_t>({1, 0})});
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ((*out)[0].shape(), Shape({2, 1}));
  EXPECT_THAT(Values<C>((*out)[0]), ElementsAre(C(1, -2), C(3, 1)));
}

TEST(Array, TileGradSumsTheCopies) {
  const auto out = RunOp("TileGrad", {Count(Shape({6})), Tensor::Of<int32_t>({3})});
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_THAT(Values<float>((*out)[0]), ElementsAre(9, 12));
  EXPECT_THAT(ErrorOf("TileGrad", {Count(Shape({6})), Tensor::Of<int32_t>({4})}).message(), HasSubstr("6 % 4"));
}

TEST(Array, TensorScattersCombineRepeatedRows) {
  const Tensor x = Tensor::Of<float>({1, 2, 3});
  const Tensor at = Tensor::Of<int32_t>(Shape({3, 1}), {0, 0, 2});
  const Tensor v = Tensor::Of<float>({5, 4, 1});
  EXPECT_THAT(Values<float>(RunOp("TensorScatterMax", {x, at, v}).value()[0]), ElementsAre(5, 2, 3));
  EXPECT_THAT(Values<float>(RunOp("TensorScatterMin", {x, at, v}).value()[0]), ElementsAre(1, 2, 1));
  EXPECT_THAT(Values<float>(RunOp("ScatterNdNonAliasingAdd", {x, at, v}).value()[0]), ElementsAre(10, 2, 4));
}

TEST(Array, TensorScatterLeavesBadRowsOutOnlyWhenAsked) {
  const Tensor x = Tensor::Of<float>({1, 2, 3});
  const Tensor at = Tensor::Of<int32_t>(Shape({2, 1}), {7, 1});
  const Tensor v = Tensor::Of<float>({5, 4});
  const Status error = ErrorOf("TensorScatterUpdate", {x, at, v});
  EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(error.message(), HasSubstr("indices[0] = [7] does not index into shape [3]"));
  const auto out = RunOp("TensorScatterUpdate", {x, at, v}, {{"bad_indices_policy", "IGNORE"}});
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_THAT(Values<float>((*out)[0]), ElementsAre(1, 4, 3));
}

TEST(Array, GradientOfTensorScatterMaxIsSharedAmongEquals) {
  const std::vector<Tensor> inputs = {Tensor::Of<float>({5, 2, 3}), Tensor::Of<int32_t>(Shape({2, 1}), {0, 2}),
                                      Tensor::Of<float>({5, 4})};
  const Tensor weights = Tensor::Of<float>({10, 20, 30});
  EXPECT_THAT(Values<float>(GradientOf("TensorScatterMax", inputs, 0, weights).value()), ElementsAre(5, 20, 0));
  EXPECT_THAT(Values<float>(GradientOf("TensorScatterMax", inputs, 2, weights).value()), ElementsAre(5, 30));
}

TEST(Array, ReverseTakesFlags) {
  Tensor flags(DType::kBool, Shape({2}));
  flags.data<bool>()[0] = false;
  flags.data<bool>()[1] = true;
  EXPECT_THAT(Values<float>(RunOp("Reverse", {Count(Shape({2, 2})), flags}).value()[0]), ElementsAre(2, 1, 4, 3));
}

TEST(Array, UniqueWithCountsAlongAnAxis) {
  const auto out =
      RunOp("UniqueWithCountsV2", {Tensor::Of<int32_t>(Shape({3, 2}), {1, 0, 1, 0, 2, 0}), Tensor::Of<int64_t>({0})});
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_THAT(Values<int32_t>((*out)[0]), ElementsAre(1, 0, 2, 0));
  EXPECT_THAT(Values<int32_t>((*out)[1]), ElementsAre(0, 0, 1));
  EXPECT_THAT(Values<int32_t>((*out)[2]), ElementsAre(2, 1));
}

TEST(Array, NansAreNeverTheSame) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto out = RunOp("Unique", {Tensor::Of<float>({nan, 0.0f, nan, -0.0f})});
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_THAT(Values<int32_t>((*out)[1]), ElementsAre(0, 1, 2, 1));
}

TEST(Array, MatrixDiagonalsOfTheSecondVersionAlignLeft) {
  const Tensor any = Tensor::Scalar<int32_t>(-1);
  const auto built = RunOp("MatrixDiagV2",
                           {Tensor::Of<float>({1, 2}), Tensor::Scalar<int32_t>(1), any, any, Tensor::Scalar<float>(9)});
  ASSERT_TRUE(built.ok()) << built.status();
  EXPECT_THAT(Values<float>((*built)[0]), ElementsAre(9, 1, 9, 9, 9, 2, 9, 9, 9));
  const auto part =
      RunOp("MatrixDiagPartV2", {Count(Shape({3, 3})), Tensor::Of<int32_t>({-1, 0}), Tensor::Scalar<float>(0)});
  ASSERT_TRUE(part.ok()) << part.status();
  EXPECT_EQ((*part)[0].shape(), Shape({2, 3}));
  EXPECT_THAT(Values<float>((*part)[0]), ElementsAre(1, 5, 9, 4, 8, 0));
  const auto set = RunOp("MatrixSetDiagV2", {Count(Shape({2, 2})), Tensor::Of<float>({9}), Tensor::Scalar<int32_t>(1)});
  ASSERT_TRUE(set.ok()) << set.status();
  EXPECT_THAT(Values<float>((*set)[0]), ElementsAre(1, 9, 3, 4));
}

TEST(Array, MatrixSetDiagV3AlignsAsItIsTold) {
  const Tensor zeros = Tensor::Of<float>(Shape({3, 3}), {0, 0, 0, 0, 0, 0, 0, 0, 0});
  const Tensor band = Tensor::Of<float>(Shape({3, 3}), {0, 1, 2, 3, 4, 5, 6, 7, 0});
  const Tensor left = Tensor::Of<float>(Shape({3, 3}), {1, 2, 0, 3, 4, 5, 6, 7, 0});
  const Tensor k = Tensor::Of<int32_t>({-1, 1});
  EXPECT_THAT(Values<float>(RunOp("MatrixSetDiagV3", {zeros, band, k}).value()[0]),
              ElementsAre(3, 1, 0, 6, 4, 2, 0, 7, 5));
  EXPECT_THAT(Values<float>(RunOp("MatrixSetDiagV3", {zeros, left, k}, {{"align", "LEFT_LEFT"}}).value()[0]),
              ElementsAre(3, 1, 0, 6, 4, 2, 0, 7, 5));
}

TEST(Array, SpaceToBatchAndBack) {
  const Tensor paddings = Tensor::Of<int32_t>(Shape({2, 2}), {1, 1, 0, 0});
  const auto batch = RunOp("SpaceToBatch", {Count(Shape({1, 2, 2, 1})), paddings}, {{"block_size", 2}});
  ASSERT_TRUE(batch.ok()) << batch.status();
  EXPECT_EQ((*batch)[0].shape(), Shape({4, 2, 1, 1}));
  EXPECT_THAT(Values<float>((*batch)[0]), ElementsAre(0, 3, 0, 4, 1, 0, 2, 0));
  const auto back = RunOp("BatchToSpace", {(*batch)[0], paddings}, {{"block_size", 2}});
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ((*back)[0].shape(), Shape({1, 2, 2, 1}));
  EXPECT_THAT(Values<float>((*back)[0]), ElementsAre(1, 2, 3, 4));
}

TEST(Array, InplaceOpsChangeRowsAndNotWhatWasFed) {
  const Tensor x = Count(Shape({2, 2}));
  const Tensor row = Tensor::Of<int32_t>({-1});
  const Tensor v = Tensor::Of<float>(Shape({1, 2}), {10, 20});
  EXPECT_THAT(Values<float>(RunOp("InplaceUpdate", {x, row, v}).value()[0]), ElementsAre(1, 2, 10, 20));
  EXPECT_THAT(Values<float>(RunOp("InplaceAdd", {x, row, v}).value()[0]), ElementsAre(1, 2, 13, 24));
  EXPECT_THAT(Values<float>(RunOp("InplaceSub", {x, row, v}).value()[0]), ElementsAre(1, 2, -7, -16));
  EXPECT_THAT(Values<float>(x), ElementsAre(1, 2, 3, 4));
  const Tensor copy = RunOp("DeepCopy", {x}).value()[0];
  EXPECT_THAT(Values<float>(copy), ElementsAre(1, 2, 3, 4));
  EXPECT_FALSE(copy.SharesBufferWith(x));
}

TEST(Array, EmptyIsZero) {
  const auto out = RunOp("Empty", {Tensor::Of<int32_t>({2})}, {{"dtype", DType::kInt64}});
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_THAT(Values<int64_t>((*out)[0]), ElementsAre(0, 0));
}

TEST(Array, VolumePatchesAndTheirGradient) {
  const std::vector<int64_t> two = {1, 2, 2, 2, 1}, one = {1, 1, 1, 1, 1};
  const AttrList attrs = {{"ksizes", two}, {"strides", one}, {"padding", "VALID"}};
  const Tensor x = Count(Shape({1, 2, 2, 3, 1}));
  const auto out = RunOp("ExtractVolumePatches", {x}, attrs);
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ((*out)[0].shape(), Shape({1, 1, 1, 2, 8}));
  EXPECT_THAT(Values<float>((*out)[0]), ElementsAre(1, 2, 4, 5, 7, 8, 10, 11, 2, 3, 5, 6, 8, 9, 11, 12));
  // The middle column is in both patches.
  const auto grad = GradientOf("ExtractVolumePatches", {x}, 0, Count(Shape({1, 1, 1, 2, 8})), attrs);
  ASSERT_TRUE(grad.ok()) << grad.status();
  EXPECT_THAT(Values<float>(*grad), ElementsAre(1, 11, 10, 3, 15, 12, 5, 19, 14, 7, 23, 16));
}

TEST(Array, CheckNumericsV2TellsTheInfinitiesApart) {
  const float inf = std::numeric_limits<float>::infinity();
  const Status error = ErrorOf("CheckNumericsV2", {Tensor::Of<float>({0, -inf, inf - inf})}, {{"message", "weights"}});
  EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(error.message(), HasSubstr("weights : Tensor had -Inf and NaN values"));
}

TEST(Array, PlaceholderThatIsNotFedSaysWhich) {
  const Status error = ErrorOf("PlaceholderV2", {}, {{"dtype", DType::kFloat}, {"shape", PartialShape({-1, 3})}});
  EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(error.message(), HasSubstr("placeholder tensor 'op' with dtype float and shape [?,3]"));
}

TEST(Array, CopyBetweenDevicesKeepsTheValue) {
  const auto out = RunOp("_CopyToDevice", {Count(Shape({3}))});
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_THAT(Values<float>((*out)[0]), ElementsAre(1, 2, 3));
}

TEST(Array, RefIdentityPassesTheVariableItself) {
  Graph graph;
  GraphBuilder b(&graph);
  const Endpoint v = b.Op("VariableV2", {}, {{"dtype", DType::kFloat}, {"shape", Shape({2})}}, "v");
  const Endpoint ref = b.Op("RefIdentity", {v});
  const Endpoint assign = b.Op("Assign", {ref, b.Const(Tensor::Of<float>({3, 4}))}, {}, "assign");
  b.Op("Identity", {v}, {}, "read");
  ASSERT_TRUE(b.ok()) << b.status();
  auto session = Session::Create().value();
  ASSERT_TRUE(session->Extend(graph).ok());
  ASSERT_TRUE(session->RunTargets({assign.node->name()}).ok());
  EXPECT_THAT(Values<float>(session->Run({"read"}).value()[0]), ElementsAre(3, 4));
}

// Sizes and indices that must be refused before memory is asked for or touched.
TEST(ArrayErrors, SizesThatOverflow) {
  const int64_t big = int64_t{1} << 62;
  const Tensor x = Count(Shape({2, 2}));
  const auto is_invalid = [](const Status& s) { return s.code() == absl::StatusCode::kInvalidArgument; };
  EXPECT_TRUE(is_invalid(ErrorOf("Fill", {Tensor::Of<int64_t>({big, big}), Tensor::Scalar<float>(0)})));
  EXPECT_TRUE(is_invalid(ErrorOf("Fill", {Tensor::Of<int64_t>({-1}), Tensor::Scalar<float>(0)})));
  EXPECT_TRUE(is_invalid(ErrorOf("Tile", {x, Tensor::Of<int64_t>({big, 4})})));
  EXPECT_TRUE(is_invalid(ErrorOf("Pad", {x, Tensor::Of<int64_t>(Shape({2, 2}), {big, big, 0, 0})})));
  EXPECT_TRUE(is_invalid(ErrorOf("Pad", {x, Tensor::Of<int64_t>(Shape({2, 2}), {0, -1, 0, 0})})));
  EXPECT_TRUE(is_invalid(ErrorOf("BroadcastTo", {x, Tensor::Of<int64_t>({big, big, 2, 2})})));
  EXPECT_TRUE(is_invalid(ErrorOf("Reshape", {x, Tensor::Of<int64_t>({big, big})})));
  EXPECT_TRUE(is_invalid(ErrorOf(
      "ScatterNd", {Tensor::Of<int64_t>(Shape({1, 1}), {0}), Tensor::Of<float>({1}), Tensor::Of<int64_t>({-3})})));
}

TEST(ArrayErrors, IndicesThatAreOutOfRangeAreNamed) {
  const Tensor x = Count(Shape({3, 2}));
  EXPECT_THAT(
      ErrorOf("GatherV2", {x, Tensor::Of<int32_t>(Shape({1, 2}), {0, 7}), Tensor::Scalar<int32_t>(0)}).message(),
      HasSubstr("indices[0,1] = 7 is not in [0, 3)"));
  EXPECT_THAT(ErrorOf("GatherV2", {x, Tensor::Of<int32_t>({-1}), Tensor::Scalar<int32_t>(1)}).message(),
              HasSubstr("indices[0] = -1 is not in [0, 2)"));
  EXPECT_THAT(ErrorOf("GatherNd", {x, Tensor::Of<int64_t>(Shape({1, 2}), {2, 2})}).message(),
              HasSubstr("indices[0] = [2, 2] does not index into param shape [3,2]"));
  EXPECT_THAT(ErrorOf("StridedSlice", {x, Tensor::Of<int32_t>({5}), Tensor::Of<int32_t>({6}), Tensor::Of<int32_t>({1})},
                      {{"shrink_axis_mask", 1}})
                  .message(),
              HasSubstr("slice index 5 of dimension 0 out of bounds"));
  EXPECT_THAT(ErrorOf("StridedSlice", {x, Tensor::Of<int32_t>({0}), Tensor::Of<int32_t>({1}), Tensor::Of<int32_t>({0})})
                  .message(),
              HasSubstr("strides[0] must be non-zero"));
  EXPECT_THAT(ErrorOf("DynamicPartition", {x, Tensor::Of<int32_t>({0, 2, 0})}, {{"num_partitions", 2}}).message(),
              HasSubstr("partitions[1] = 2 is not in [0, 2)"));
  EXPECT_THAT(ErrorOf("UnravelIndex", {Tensor::Of<int32_t>({6}), Tensor::Of<int32_t>({2, 3})}).message(),
              HasSubstr("indices[0] = 6 is not in [0, 6)"));
}

TEST(ArrayErrors, EdgesOfIntegersDoNotWrap) {
  const int64_t low = std::numeric_limits<int64_t>::min(), high = std::numeric_limits<int64_t>::max();
  const Tensor x = Count(Shape({4}));
  const auto slice = [&](int64_t begin, int64_t end, int64_t stride) {
    return Values<float>(RunOp("StridedSlice", {x, Tensor::Of<int64_t>({begin}), Tensor::Of<int64_t>({end}),
                                                Tensor::Of<int64_t>({stride})})
                             .value()[0]);
  };
  EXPECT_THAT(slice(low, high, 1), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(slice(high, low, -1), ElementsAre(4, 3, 2, 1));
  EXPECT_THAT(slice(0, high, high), ElementsAre(1));
  EXPECT_THAT(slice(high, low, low), ElementsAre(4));
  EXPECT_FALSE(ErrorOf("Slice", {x, Tensor::Of<int64_t>({high}), Tensor::Of<int64_t>({high})}).ok());
  EXPECT_FALSE(ErrorOf("Slice", {x, Tensor::Of<int64_t>({1}), Tensor::Of<int64_t>({high})}).ok());
  EXPECT_THAT(Values<float>(RunOp("Roll", {x, Tensor::Scalar<int64_t>(low), Tensor::Scalar<int64_t>(0)}).value()[0]),
              ElementsAre(1, 2, 3, 4));
}

// Large enough for several tiles and several threads, with edges that fill no tile.
template <typename T>
void TransposesLikeALoop(const Shape& shape) {
  Tensor x(DTypeOf<T>(), shape);
  for (int64_t i = 0; i < x.num_elements(); ++i) x.data<T>()[i] = static_cast<T>(i * 7 + i / 251);
  std::vector<int32_t> perm(shape.rank());
  std::iota(perm.begin(), perm.end(), 0);
  do {
    const auto out = RunOp("Transpose", {x, Tensor::FromVector(perm)});
    ASSERT_TRUE(out.ok()) << out.status();
    const Tensor& y = (*out)[0];
    std::vector<int64_t> at(shape.rank(), 0);
    for (int64_t i = 0; i < y.num_elements(); ++i) {
      int64_t rest = i, from = 0;
      for (int d = shape.rank() - 1; d >= 0; --d) {
        at[d] = rest % y.dim(d);
        rest /= y.dim(d);
      }
      for (int d = 0; d < shape.rank(); ++d) {
        from += at[d] * shape.Product(perm[d] + 1, shape.rank());
      }
      ASSERT_EQ(y.data<T>()[i], x.data<T>()[from]) << "element " << i;
    }
  } while (std::next_permutation(perm.begin(), perm.end()));
}

TEST(Array, TransposesOfAllSizes) {
  TransposesLikeALoop<float>(Shape({333, 1217}));
  TransposesLikeALoop<uint8_t>(Shape({17, 40, 33}));
  TransposesLikeALoop<double>(Shape({3, 50, 2, 35}));
  TransposesLikeALoop<int16_t>(Shape({5, 1, 7, 3, 2}));
}

TEST(Array, LargeGathersTakeTheRowsAsked) {
  const int64_t rows = 5000, width = 130, count = 4000;
  Tensor x(DType::kFloat, Shape({rows, width}));
  std::iota(x.data<float>(), x.data<float>() + x.num_elements(), 0.0f);
  Tensor at(DType::kInt64, Shape({count}));
  for (int64_t i = 0; i < count; ++i) at.data<int64_t>()[i] = (i * 7919) % rows;
  const Tensor y = RunOp("GatherV2", {x, at, Tensor::Scalar<int32_t>(0)}).value()[0];
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t j = 0; j < width; ++j) {
      ASSERT_EQ(y.data<float>()[i * width + j], x.data<float>()[at.data<int64_t>()[i] * width + j]);
    }
  }
}

}  // namespace
}  // namespace millrace
