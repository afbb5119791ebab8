#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "millrace/ops/control_flow/summarize.h"
#include "tests/ops/op_session.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using ControlFlowTest = OpSessionTest;

TEST_F(ControlFlowTest, MergeTellsWhichSideArrived) {
  for (const bool pred : {false, true}) {
    Node* sw = b_.AddNode("Switch", {b_.Scalar<float>(5), b_.Scalar(pred)});
    Node* merge = b_.AddNode("Merge", {b_.Neg(sw->output(0)), b_.Op("Identity", {sw->output(1)})});
    const auto results = Fetch({merge->output(0), merge->output(1)});
    ASSERT_TRUE(results.ok()) << results.status();
    EXPECT_EQ((*results)[0].scalar<float>(), pred ? 5 : -5);
    EXPECT_EQ((*results)[1].scalar<int32_t>(), pred ? 1 : 0);
  }
}

TEST_F(ControlFlowTest, UpdateOnTheDeadSideDoesNotHappen) {
  const Endpoint v = b_.Op("VariableV2", {}, {{"dtype", DType::kFloat}, {"shape", PartialShape({2})}}, "v");
  ASSERT_TRUE(Run(b_.AddNode("Assign", {v, b_.Const(Tensor::Of<float>({1, 2}))})).ok());
  Node* sw = b_.AddNode("RefSwitch", {v, b_.Scalar(true)});
  const Endpoint one = b_.Const(Tensor::Of<float>({1, 1}));
  Node* taken = b_.AddNode("AssignAdd", {sw->output(1), one});
  Node* dead = b_.AddNode("AssignSub", {sw->output(0), one});
  ASSERT_TRUE(Fetch({}, {taken, dead}).ok());
  EXPECT_THAT(Values<float>(b_.Op("Identity", {v})), ElementsAre(2, 3));
}

TEST_F(ControlFlowTest, FailedAssertShowsItsData) {
  Node* check = b_.AddNode("Assert", {b_.Scalar(false), b_.Const(Tensor::Scalar("too large:")),
                                      b_.Const(Tensor::Of<int32_t>({1, 2, 3, 4}))});
  const Status status = Run(check);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("assertion failed: [too large:] [1 2 3...]"));
}

TEST_F(ControlFlowTest, AbortFailsTheStepOnly) {
  Node* abort = b_.AddNode("Abort", {}, {{"error_msg", "enough"}, {"exit_without_error", true}});
  const Status status = Run(abort);
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("enough"));
}

TEST_F(ControlFlowTest, PrintPassesItsInputOnAndStopsAfterFirstN) {
  const Endpoint x = b_.Const(Tensor::Of<float>({1, 2}));
  const Endpoint printed = b_.Op("Print", {x, x}, {{"message", "x = "}, {"first_n", 1}});
  ::testing::internal::CaptureStderr();
  EXPECT_THAT(Values<float>(printed), ElementsAre(1, 2));
  EXPECT_THAT(Values<float>(printed), ElementsAre(1, 2));
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "x = [1 2]\n");
}

TEST_F(ControlFlowTest, ReferenceGoesThroughALoopAndPointsToTheSameVariable) {
  const Endpoint v = b_.Op("VariableV2", {}, {{"dtype", DType::kFloat}, {"shape", PartialShape({2})}}, "v");
  ASSERT_TRUE(Run(b_.AddNode("Assign", {v, b_.Const(Tensor::Of<float>({1, 2}))})).ok());
  const Endpoint inside = b_.Op("RefEnter", {v}, {{"frame_name", "frame"}});
  const Endpoint outside = b_.Op("RefExit", {b_.Op("RefNextIteration", {inside})});
  Node* add = b_.AddNode("AssignAdd", {outside, b_.Const(Tensor::Of<float>({1, 1}))});
  ASSERT_TRUE(Run(add).ok());
  EXPECT_THAT(Values<float>(b_.Op("Identity", {v})), ElementsAre(2, 3));
}

// v = v * v four times: each iteration reads what the one before it has written, through an Identity outside of the
// loop.
TEST_F(ControlFlowTest, ALoopThatUpdatesAVariableReadsWhatItHasWritten) {
  const Endpoint v = b_.Op("VariableV2", {}, {{"dtype", DType::kFloat}, {"shape", PartialShape::Scalar()}}, "v");
  ASSERT_TRUE(Run(b_.AddNode("Assign", {v, b_.Scalar<float>(2)})).ok());
  const AttrList frame = {{"frame_name", "f"}};
  const AttrList constant = {{"frame_name", "f"}, {"is_constant", true}};
  const Endpoint read = b_.Op("Enter", {b_.Op("Identity", {v})}, constant), ref = b_.Op("RefEnter", {v}, constant);
  const Endpoint four = b_.Op("Enter", {b_.Scalar<int32_t>(4)}, constant);
  Node* merge = b_.AddNode("Merge", {b_.Op("Enter", {b_.Scalar<int32_t>(0)}, frame), b_.Scalar<int32_t>(0)});
  Node* gate = b_.AddNode("Switch", {merge->output(0), b_.Op("LoopCond", {b_.Op("Less", {merge->output(0), four})})});
  const Endpoint i = b_.Op("Identity", {gate->output(1)});
  b_.control_inputs = {i.node};
  Node* update = b_.AddNode("Assign", {ref, b_.Op("Square", {read})});
  b_.control_inputs = {update};
  const Endpoint one = b_.Scalar<int32_t>(1);
  const Endpoint next = b_.Op("NextIteration", {b_.Op("Add", {i, one})});
  b_.control_inputs = {};
  ASSERT_TRUE(b_.status().ok()) << b_.status();
  graph_.SetInput(merge, 1, next);
  ASSERT_EQ(Values<int32_t>(b_.Op("Exit", {gate->output(0)})), std::vector<int32_t>{4});
  EXPECT_THAT(Values<float>(b_.Op("Identity", {v})), ElementsAre(65536));
}

TEST_F(ControlFlowTest, RefSelectUpdatesTheChosenVariableOnly) {
  std::vector<Endpoint> vs;
  for (const char* name : {"a", "b"}) {
    vs.push_back(b_.Op("VariableV2", {}, {{"dtype", DType::kFloat}, {"shape", PartialShape({1})}}, name));
    ASSERT_TRUE(Run(b_.AddNode("Assign", {vs.back(), b_.Const(Tensor::Of<float>({1}))})).ok());
  }
  const Endpoint chosen = b_.Op("RefSelect", {b_.Scalar<int32_t>(1), vs[0], vs[1]});
  ASSERT_TRUE(Run(b_.AddNode("AssignAdd", {chosen, b_.Const(Tensor::Of<float>({4}))})).ok());
  EXPECT_THAT(Values<float>(b_.Op("Identity", {vs[0]})), ElementsAre(1));
  EXPECT_THAT(Values<float>(b_.Op("Identity", {vs[1]})), ElementsAre(5));
  const Endpoint none = b_.Op("RefSelect", {b_.Scalar<int32_t>(2), vs[0], vs[1]});
  EXPECT_EQ(Fetch({none}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(ControlFlowTest, PrintV2WritesTheStringAndItsEnd) {
  Node* print = b_.AddNode("PrintV2", {b_.Const(Tensor::Scalar("loss 0.5"))}, {{"end", "!\n"}});
  ::testing::internal::CaptureStderr();
  EXPECT_TRUE(Run(print).ok());
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "loss 0.5!\n");
  Node* nowhere = b_.AddNode("PrintV2", {b_.Const(Tensor::Scalar("x"))}, {{"output_stream", "printer"}});
  EXPECT_EQ(Run(nowhere).code(), absl::StatusCode::kInvalidArgument);
}

TEST(SummarizeTest, NestsRowsAndStopsAtTheLimit) {
  const Tensor t = Tensor::Of<int32_t>(Shape({2, 2}), {1, 2, 3, 4});
  EXPECT_EQ(SummarizeValues(t, -1), "[1 2][3 4]");
  EXPECT_EQ(SummarizeValues(t, 3), "[1 2][3...]...");
  EXPECT_EQ(SummarizeValues(t, 2), "[1 2]...");
  EXPECT_EQ(SummarizeValues(t, 0), "...");
  EXPECT_EQ(SummarizeValues(Tensor::Scalar(1.0f / 3), 3), "0.333333343");
  EXPECT_EQ(SummarizeValues(Tensor::Scalar(0.1f), 3), "0.1");
  EXPECT_EQ(SummarizeValues(Tensor::Scalar(1.0 / 3), 3), "0.33333333333333331");
  EXPECT_EQ(SummarizeValues(Tensor::Scalar(std::complex<float>(1, 2)), 3), "?");
  EXPECT_EQ(SummarizeValues(Tensor::Scalar<std::string>("a\"\n"), 3), "a\\\"\\n");
  EXPECT_EQ(SummarizeValues(Tensor::Scalar(true), 3), "1");
  EXPECT_EQ(SummarizeValues(Tensor(DType::kFloat, Shape({0})), 3), "");
}

}  // namespace
}  // namespace millrace
