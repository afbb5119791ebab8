// What the golden cases do not reach: odd ranks, empty tensors, errors, memory that is reused, and
// sizes that are spread over threads.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "millrace/graph/gradient.h"
#include "millrace/graph/graph_builder.h"
#include "millrace/session/session.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::HasSubstr;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// Feeds `inputs` to one node and fetches its first output. The graph does not know the inputs'
// shapes, so it is the kernel that answers.
StatusOr<Tensor> RunMathOp(const std::string& op, const std::vector<Tensor>& inputs, AttrList attrs = {},
                           int threads = 0) {
  Graph graph;
  GraphBuilder b(&graph);
  std::vector<Endpoint> ends;
  std::vector<Feed> feeds;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::string name = absl::StrCat("in", i);
    ends.push_back(Endpoint{b.AddNode("Placeholder", {}, {{"dtype", inputs[i].dtype()}}, name), 0});
    feeds.emplace_back(name, inputs[i]);
  }
  b.AddNode(op, ends, std::move(attrs), "op");
  MR_RETURN_IF_ERROR(b.status());
  SessionOptions options;
  options.intra_op_threads = threads;
  MR_ASSIGN_OR_RETURN(std::unique_ptr<Session> session, Session::Create(options));
  MR_RETURN_IF_ERROR(session->Extend(graph));
  MR_ASSIGN_OR_RETURN(std::vector<Tensor> results, session->Run(feeds, {"op:0"}));
  return results[0];
}

std::string ErrorOf(const std::string& op, const std::vector<Tensor>& inputs, AttrList attrs = {}) {
  const Status status = RunMathOp(op, inputs, std::move(attrs)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  return std::string(status.message());
}

// The gradients of the sum of the output for all inputs.
StatusOr<std::vector<Tensor>> GradientsOf(const std::string& op, const std::vector<Tensor>& inputs,
                                          AttrList attrs = {}) {
  Graph graph;
  GraphBuilder b(&graph);
  std::vector<Endpoint> ends;
  for (const Tensor& input : inputs) ends.push_back(b.Const(input, "in"));
  const Endpoint y = b.Op(op, ends, std::move(attrs), "op");
  MR_RETURN_IF_ERROR(b.status());
  MR_ASSIGN_OR_RETURN(std::vector<Grad> grads, AddGradients(&graph, {y}, ends));
  std::vector<std::string> names;
  for (const Grad& grad : grads) names.push_back(Densify(b, grad).name());
  MR_RETURN_IF_ERROR(b.status());
  MR_ASSIGN_OR_RETURN(std::unique_ptr<Session> session, Session::Create());
  MR_RETURN_IF_ERROR(session->Extend(graph));
  return session->Run(names);
}

template <typename T>
std::vector<T> Values(const StatusOr<Tensor>& t) {
  EXPECT_TRUE(t.ok()) << t.status();
  if (!t.ok()) return {};
  return std::vector<T>(t->data<T>(), t->data<T>() + t->num_elements());
}

Tensor Count(Shape shape) {
  Tensor t(DType::kFloat, shape);
  std::iota(t.data<float>(), t.data<float>() + t.num_elements(), 1.0f);
  return t;
}

TEST(Broadcasting, WorksAtRankEight) {
  const Tensor a = Count(Shape({2, 1, 3, 1, 2, 1, 1, 2})), b = Count(Shape({4, 1, 2, 1, 3, 2, 1}));
  const StatusOr<Tensor> sum = RunMathOp("Sub", {a, b});
  ASSERT_TRUE(sum.ok()) << sum.status();
  ASSERT_EQ(sum->shape(), Shape({2, 4, 3, 2, 2, 3, 2, 2}));
  // Element by element, from the definition.
  const int64_t dims[8] = {2, 4, 3, 2, 2, 3, 2, 2};
  for (int64_t i = 0; i < sum->num_elements(); ++i) {
    int64_t at[8], rest = i, ia = 0, ib = 0;
    for (int d = 7; d >= 0; --d) {
      at[d] = rest % dims[d];
      rest /= dims[d];
    }
    for (int d = 0; d < 8; ++d) {
      ia = ia * a.dim(d) + (a.dim(d) == 1 ? 0 : at[d]);
      if (d > 0) ib = ib * b.dim(d - 1) + (b.dim(d - 1) == 1 ? 0 : at[d]);
    }
    ASSERT_EQ(sum->data<float>()[i], a.data<float>()[ia] - b.data<float>()[ib]) << "element " << i;
  }
}

TEST(Broadcasting, OfEmptyTensorsIsEmpty) {
  const StatusOr<Tensor> sum = RunMathOp("AddV2", {Tensor(DType::kFloat, Shape({0, 3})), Count(Shape({3}))});
  ASSERT_TRUE(sum.ok()) << sum.status();
  EXPECT_EQ(sum->shape(), Shape({0, 3}));
  const StatusOr<Tensor> one = RunMathOp("AddV2", {Tensor(DType::kFloat, Shape({0})), Count(Shape({1}))});
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_EQ(one->shape(), Shape({0}));
}

TEST(Broadcasting, NamesShapesThatDoNotFit) {
  EXPECT_THAT(ErrorOf("Mul", {Count(Shape({2, 3})), Count(Shape({4}))}),
              HasSubstr("Incompatible shapes: [2,3] vs. [4]"));
  EXPECT_THAT(ErrorOf("SelectV2", {Tensor::Of<bool>({true, false}), Count(Shape({3})), Count(Shape({3}))}),
              HasSubstr("Incompatible shapes"));
}

TEST(Broadcasting, IsTheSameOverThreadsAsInOnePiece) {
  const Tensor a = Count(Shape({300, 1, 70})), b = Count(Shape({11, 70}));
  const std::vector<float> one = Values<float>(RunMathOp("Mul", {a, b}, {}, 1));
  EXPECT_EQ(Values<float>(RunMathOp("Mul", {a, b}, {}, 4)), one);
  EXPECT_EQ(one[(299 * 11 + 10) * 70 + 69], a.data<float>()[299 * 70 + 69] * b.data<float>()[10 * 70 + 69]);
}

// (x + x) * x over intermediate values that only this graph holds: results land in the memory of
// operands.
TEST(Elementwise, MayWriteOverItsOperands) {
  Graph graph;
  GraphBuilder b(&graph);
  const Endpoint x{b.AddNode("Placeholder", {}, {{"dtype", DType::kFloat}}, "x"), 0};
  const Endpoint y = b.Op("Exp", {b.Neg(x)});
  const Endpoint z = b.Mul(b.Add(y, y), b.Op("Sqrt", {b.Op("Square", {y})}));
  const Endpoint as_bits = b.Cast(b.Cast(b.Op("Floor", {b.Mul(z, b.Scalar(100.0f))}), DType::kInt32), DType::kFloat);
  std::unique_ptr<Session> session = Session::Create().value();
  ASSERT_TRUE(session->Extend(graph).ok());
  const Tensor input = Count(Shape({1000}));
  const auto result = session->Run({Feed("x", input)}, {as_bits.name()});
  ASSERT_TRUE(result.ok()) << result.status();
  for (int i = 0; i < 1000; ++i) {
    ASSERT_EQ(input.data<float>()[i], i + 1) << "a fed tensor was written to";
    ASSERT_NEAR((*result)[0].data<float>()[i], std::floor(200 * std::exp(-2.0 * (i + 1))), 1.0);
  }
}

TEST(IntegerDivision, ByZeroIsAnErrorAndTheSmallestNumberByMinusOneWraps) {
  const int32_t least = std::numeric_limits<int32_t>::min();
  for (const char* op : {"Div", "FloorDiv", "TruncateDiv", "FloorMod", "TruncateMod"}) {
    EXPECT_THAT(ErrorOf(op, {Tensor::Of<int32_t>({1, 2}), Tensor::Of<int32_t>({1, 0})}),
                HasSubstr("Integer division by zero"));
    const auto wrapped = Values<int32_t>(RunMathOp(op, {Tensor::Of<int32_t>({least}), Tensor::Of<int32_t>({-1})}));
    EXPECT_THAT(wrapped, ElementsAre(absl::StrContains(op, "Mod") ? 0 : least)) << op;
  }
  EXPECT_THAT(
      Values<int8_t>(RunMathOp("FloorDiv", {Tensor::Of<int8_t>({-7, 7, -128}), Tensor::Of<int8_t>({2, -2, -1})})),
      ElementsAre(-4, -4, -128));
  EXPECT_THAT(ErrorOf("Pow", {Tensor::Of<int32_t>({2}), Tensor::Of<int32_t>({-1})}),
              HasSubstr("negative integer powers"));
}

TEST(Reduction, AgreesWithItsDefinitionForAnyAxes) {
  const Shape shape({3, 4, 2, 5, 3});
  const Tensor x = Count(shape);
  for (int mask = 0; mask < 32; ++mask) {
    std::vector<int32_t> axes;
    for (int d = 0; d < 5; ++d) {
      if (mask >> d & 1) axes.push_back(d % 2 == 0 ? d : d - 5);
    }
    std::vector<double> want;
    Shape kept = shape;
    for (int d = 0; d < 5; ++d) {
      if (mask >> d & 1) kept.set_dim(d, 1);
    }
    want.resize(kept.num_elements());
    for (int64_t i = 0; i < x.num_elements(); ++i) {
      int64_t rest = i, to = 0, stride = 1;
      for (int d = 4; d >= 0; --d) {
        if ((mask >> d & 1) == 0) to += rest % shape.dim(d) * stride;
        stride *= kept.dim(d);
        rest /= shape.dim(d);
      }
      want[to] += x.data<float>()[i];
    }
    const StatusOr<Tensor> sum = RunMathOp("Sum", {x, Tensor::FromVector(axes)}, {{"keep_dims", true}});
    ASSERT_TRUE(sum.ok()) << sum.status();
    ASSERT_EQ(sum->shape(), kept);
    for (int64_t i = 0; i < sum->num_elements(); ++i) ASSERT_EQ(sum->data<float>()[i], want[i]) << "axes " << mask;
  }
}

TEST(Reduction, IsAccurateAndTheSameOnAnyNumberOfThreads) {
  Tensor x(DType::kFloat, Shape({1000, 3001}));
  for (int64_t i = 0; i < x.num_elements(); ++i) x.data<float>()[i] = 0.1f + 1e-3f * (i % 7);
  double exact = 0;
  for (float v : x.flat<float>()) exact += v;
  const Tensor all = Tensor::Of<int32_t>({0, 1}), rows = Tensor::Of<int32_t>({0});
  const std::vector<float> one = Values<float>(RunMathOp("Sum", {x, all}, {}, 1));
  EXPECT_NEAR(one[0] / exact, 1.0, 3e-7);
  EXPECT_EQ(Values<float>(RunMathOp("Sum", {x, all}, {}, 3)), one);
  EXPECT_EQ(Values<float>(RunMathOp("Sum", {x, rows}, {}, 3)), Values<float>(RunMathOp("Sum", {x, rows}, {}, 1)));
}

TEST(Reduction, RejectsBadAxes) {
  EXPECT_THAT(ErrorOf("Sum", {Count(Shape({2, 3})), Tensor::Of<int32_t>({2})}),
              HasSubstr("Invalid reduction dimension"));
  EXPECT_THAT(ErrorOf("Sum", {Count(Shape({2, 3})), Tensor::Of<int32_t>({1, -1})}), HasSubstr("duplicate"));
  EXPECT_THAT(ErrorOf("ArgMax", {Count(Shape({2, 0})), Tensor::Scalar<int32_t>(1)}), HasSubstr("empty"));
}

TEST(Reduction, KeepsNaNs) {
  const Tensor x = Tensor::Of<float>({1, kNaN, 3});
  for (const char* op : {"Max", "Min", "Sum"}) {
    EXPECT_TRUE(std::isnan(Values<float>(RunMathOp(op, {x, Tensor::Scalar<int32_t>(0)}))[0])) << op;
  }
}

TEST(Range, RejectsWhatDoesNotEnd) {
  const auto i = [](int32_t v) { return Tensor::Scalar<int32_t>(v); };
  EXPECT_THAT(ErrorOf("Range", {i(0), i(5), i(0)}), HasSubstr("delta != 0"));
  EXPECT_THAT(ErrorOf("Range", {i(5), i(0), i(1)}), HasSubstr("Requires start <= limit when delta > 0: 5/0"));
  EXPECT_THAT(ErrorOf("LinSpace", {Tensor::Scalar(0.0f), Tensor::Scalar(1.0f), i(0)}), HasSubstr("num > 0"));
}

TEST(Segments, RejectBadIds) {
  const Tensor x = Count(Shape({3, 2}));
  EXPECT_THAT(ErrorOf("SegmentSum", {x, Tensor::Of<int32_t>({1, 0, 2})}), HasSubstr("not increasing"));
  EXPECT_THAT(ErrorOf("SegmentSum", {x, Tensor::Of<int32_t>({-1, 0, 2})}),
              HasSubstr("Segment id -1 out of range [0, 3)"));
  EXPECT_THAT(ErrorOf("SegmentSum", {x, Tensor::Of<int32_t>({0, 0, -1})}), HasSubstr(">= 0"));
  EXPECT_THAT(ErrorOf("UnsortedSegmentSum", {x, Tensor::Of<int32_t>({0, 5, 1}), Tensor::Scalar<int32_t>(5)}),
              HasSubstr("segment_ids[1] = 5 is out of range [0, 5)"));
  const Tensor huge = Tensor::Of<int64_t>({(int64_t{1} << 62) - 1});
  EXPECT_THAT(ErrorOf("SparseSegmentSum", {x, huge, huge}), HasSubstr("overflow when multiplying"));
  EXPECT_THAT(ErrorOf("SparseSegmentSum", {x, Tensor::Of<int32_t>({0, 3}), Tensor::Of<int32_t>({0, 0})}),
              HasSubstr("out of range [0, 3)"));
}

TEST(Sparse, RejectsIndicesOutOfBounds) {
  const Tensor indices = Tensor::Of<int64_t>(Shape({1, 2}), {1, 3}), shape = Tensor::Of<int64_t>({2, 3});
  EXPECT_THAT(ErrorOf("SparseToDense", {indices, shape, Tensor::Of<float>({1}), Tensor::Scalar(0.0f)}),
              HasSubstr("out of bounds"));
  EXPECT_THAT(ErrorOf("SparseReorder", {indices, Tensor::Of<float>({1}), shape}), HasSubstr("out of bounds"));
  EXPECT_THAT(ErrorOf("SparseTensorDenseMatMul", {indices, Tensor::Of<float>({1}), shape, Count(Shape({3, 2}))}),
              HasSubstr("out of bounds"));
}

TEST(Einsum, TakesTracesDiagonalsAndBroadcastDots) {
  const Tensor m = Count(Shape({3, 3}));
  EXPECT_THAT(Values<float>(RunMathOp("Einsum", {m}, {{"equation", "ii->"}, {"N", 1}})), ElementsAre(15));
  EXPECT_THAT(Values<float>(RunMathOp("Einsum", {m}, {{"equation", "ii->i"}, {"N", 1}})), ElementsAre(1, 5, 9));
  EXPECT_THAT(Values<float>(RunMathOp("Einsum", {Count(Shape({2}))}, {{"equation", "i->ii"}, {"N", 1}})),
              ElementsAre(1, 0, 0, 2));
  const StatusOr<Tensor> dots =
      RunMathOp("Einsum", {Count(Shape({2, 1, 2})), Count(Shape({3, 2}))}, {{"equation", "...k,...k->..."}, {"N", 2}});
  EXPECT_THAT(Values<float>(dots), ElementsAre(5, 11, 17, 11, 25, 39));
  EXPECT_THAT(ErrorOf("Einsum", {m, Count(Shape({2, 3}))}, {{"equation", "ij,jk->ik"}, {"N", 2}}),
              HasSubstr("Expected dimension 3"));
  EXPECT_THAT(ErrorOf("Einsum", {Count(Shape({2, 2, 3})), m}, {{"equation", "...ij,...jk->ik"}, {"N", 2}}),
              HasSubstr("'ik' lacks '...'"));
}

TEST(Einsum, HasGradientsForSummedAndRepeatedLabels) {
  const auto trace = GradientsOf("Einsum", {Count(Shape({2, 2}))}, {{"equation", "ii->"}, {"N", 1}});
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_THAT(Values<float>((*trace)[0]), ElementsAre(1, 0, 0, 1));
  // d/da of sum_ijk a_ij b_jk = row sums of b; the label i is only a's, k only b's.
  const auto sums =
      GradientsOf("Einsum", {Count(Shape({2, 2})), Count(Shape({2, 3}))}, {{"equation", "ij,jk->"}, {"N", 2}});
  ASSERT_TRUE(sums.ok()) << sums.status();
  EXPECT_THAT(Values<float>((*sums)[0]), ElementsAre(6, 15, 6, 15));
  EXPECT_THAT(Values<float>((*sums)[1]), ElementsAre(4, 4, 4, 6, 6, 6));
}

TEST(Special, DigammaAndItsDerivative) {
  const auto value = Values<float>(RunMathOp("Digamma", {Tensor::Of<float>({1, -0.5f})}));
  EXPECT_THAT(value, ElementsAre(FloatNear(-0.57721566f, 1e-6), FloatNear(0.03648997f, 1e-6)));
  const auto slope = GradientsOf("Digamma", {Tensor::Of<float>({1, 2.5f})});
  ASSERT_TRUE(slope.ok()) << slope.status();
  EXPECT_THAT(Values<float>((*slope)[0]), ElementsAre(FloatNear(1.6449341f, 1e-5), FloatNear(0.4903577f, 1e-5)));
}

TEST(Special, ProductsWithZeroIgnoreTheOtherFactor) {
  const Tensor x = Tensor::Of<float>({0, 2}), y = Tensor::Of<float>({-1, 0.5f});
  EXPECT_THAT(Values<float>(RunMathOp("Xlog1py", {x, y})), ElementsAre(0, FloatNear(0.81093022f, 1e-6)));
  const auto gradients = GradientsOf("Xlog1py", {x, y});
  ASSERT_TRUE(gradients.ok()) << gradients.status();
  EXPECT_THAT(Values<float>((*gradients)[0]), ElementsAre(0, FloatNear(0.40546511f, 1e-6)));
  EXPECT_THAT(Values<float>((*gradients)[1]), ElementsAre(0, FloatNear(1.3333334f, 1e-6)));
}

// Rows of one length, behind each other: every place in them or nearly so, against rows that are sorted, NaNs last.
template <typename T>
void CheckNthElements(const std::vector<T>& rows, int64_t length) {
  const int64_t count = static_cast<int64_t>(rows.size()) / length;
  std::vector<T> sorted = rows;
  for (auto row = sorted.begin(); row != sorted.end(); row += length) {
    std::sort(row, row + length, [](T a, T b) { return a < b || (a == a && b != b); });
  }
  Tensor input(DTypeOf<T>(), Shape({count, length}));
  std::copy(rows.begin(), rows.end(), input.data<T>());
  for (int64_t n = 0; n < length; n += 1 + length / 40) {
    for (const bool reverse : {false, true}) {
      const auto found = Values<T>(
          RunMathOp("NthElement", {input, Tensor::Scalar<int32_t>(static_cast<int32_t>(n))}, {{"reverse", reverse}}));
      ASSERT_EQ(static_cast<int64_t>(found.size()), count);
      for (int64_t r = 0; r < count; ++r) {
        const T expected = sorted[r * length + (reverse ? length - 1 - n : n)];
        EXPECT_TRUE(found[r] == expected || (expected != expected && found[r] != found[r]))
            << "place " << n << " of " << length << " in row " << r << ", reverse " << reverse << ": " << found[r]
            << ", not " << expected;
      }
    }
  }
}

TEST(NthElement, IsThatOfTheSortedRow) {
  std::mt19937 random(1);
  for (const int length : {1, 2, 63, 64, 65, 300, 5000}) {
    std::vector<float> rising, falling, mixed, few, with_nans;
    std::vector<int32_t> whole;
    for (int i = 0; i < length; ++i) {
      rising.push_back(0.5f * i);
      falling.push_back(-0.5f * i);
      mixed.push_back(std::normal_distribution<float>()(random));
      few.push_back(static_cast<float>(random() % 3));
      with_nans.push_back(random() % 3 == 0 ? kNaN : mixed.back());
      whole.push_back(static_cast<int32_t>(random()));
    }
    std::vector<float> rows(length, 3.0f);
    for (const auto* row : {&rising, &falling, &mixed, &few, &with_nans})
      rows.insert(rows.end(), row->begin(), row->end());
    CheckNthElements(rows, length);
    CheckNthElements(whole, length);
  }
}

TEST(Linalg, RejectsSingularAndOddShapedMatrices) {
  EXPECT_THAT(ErrorOf("MatrixInverse", {Tensor::Of<float>(Shape({2, 2}), {1, 2, 2, 4})}), HasSubstr("not invertible"));
  EXPECT_THAT(ErrorOf("Cholesky", {Count(Shape({2, 3}))}), HasSubstr("square"));
  EXPECT_THAT(ErrorOf("Cholesky", {Tensor::Of<float>(Shape({2, 2}), {1, 2, 2, 1})}), HasSubstr("not successful"));
}

}  // namespace
}  // namespace millrace
