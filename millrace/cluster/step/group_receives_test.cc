#include "millrace/cluster/step/group_receives.h"

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "millrace/cluster/codec/codec.h"
#include "millrace/cluster/step/ps_worker_graph_testing.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

class GroupReceivesTest : public PsWorkerGraphTest {
 protected:
  // For each group of the part at `device`, the tensors in it.
  std::vector<std::vector<std::string>> Groups(const char* device, bool speak = true) {
    if (parts_.empty()) CutIntoParts();
    GroupReceives(absl::MakeSpan(parts_), [&](absl::string_view) { return speak; });
    std::vector<std::vector<std::string>> result;
    for (const Part& part : parts_) {
      if (!absl::StartsWith(device, part.task)) continue;
      const ReceiveGroups found = FindReceiveGroups(*part.graph);
      for (const ReceiveGroup& group : found.groups) {
        result.emplace_back();
        for (const std::string& key : group.keys) {
          EXPECT_TRUE(found.keys.contains(key));
          // "device;incarnation;device;edge_7_name;0:0"
          const std::string tensor = std::vector<std::string>(absl::StrSplit(key, ';'))[3];
          result.back().push_back(tensor.substr(tensor.find('_', 5) + 1));
        }
      }
    }
    return result;
  }
};

TEST_F(GroupReceivesTest, SmallVariablesOfAStepComeInOneMessageAndSoDoGradients) {
  const Endpoint a = Read(Variable("a", 10)), b = Read(Variable("b", 20));
  const Endpoint x = Unary(kWorker, "Neg", a, "x"), y = Unary(kWorker, "Neg", b, "y");
  Unary(kPs, "Exp", x, "use_x");
  Unary(kPs, "Exp", y, "use_y");
  EXPECT_THAT(Groups(kWorker), ElementsAre(UnorderedElementsAre("a/read", "b/read")));
  EXPECT_THAT(Groups(kPs), ElementsAre(UnorderedElementsAre("x", "y")));
}

TEST_F(GroupReceivesTest, ATensorThatNeedsTheOthersReceiverIsNotInTheirGroup) {
  // b goes to the worker only after what the worker made of a came back.
  const Endpoint a = Read(Variable("a", 10));
  const Endpoint x = Unary(kWorker, "Neg", a, "x");
  const Endpoint b = Unary(kPs, "Exp", x, "b");
  Unary(kWorker, "Neg", b, "y");
  EXPECT_THAT(Groups(kWorker), IsEmpty());
  EXPECT_THAT(Groups(kPs), IsEmpty());
}

TEST_F(GroupReceivesTest, WhatMayHaveToBeWaitedForComesAlone) {
  const Endpoint a = Read(Variable("a", 10)), b = Read(Variable("b", 10));
  const AttrList types = {{"component_types", std::vector<DType>{DType::kFloat}}};
  const Endpoint queue = On(kPs, b_.Op("FIFOQueueV2", {}, types, "queue"));
  const Endpoint taken = On(kPs, b_.Op("QueueDequeueV2", {queue}, types, "taken"));
  graph_->SetOutputShape(taken.node, 0, PartialShape({10}));
  Unary(kWorker, "Neg", a, "x");
  Unary(kWorker, "Neg", b, "y");
  Unary(kWorker, "Neg", taken, "z");
  Unary(kWorker, "Neg", Unary(kPs, "Exp", taken, "made_of_it"), "u");
  EXPECT_THAT(Groups(kWorker), ElementsAre(UnorderedElementsAre("a/read", "b/read")));
}

TEST_F(GroupReceivesTest, LargeTensorsAndThoseOfUnknownSizeComeAlone) {
  for (const int i : {0, 1})
    Unary(kWorker, "Neg", Read(Variable(absl::StrCat("large", i), 300000)), absl::StrCat("x", i));
  for (const int i : {0, 1})
    Unary(kWorker, "Neg", Read(Variable(absl::StrCat("unknown", i), -1)), absl::StrCat("y", i));
  EXPECT_THAT(Groups(kWorker), IsEmpty());
}

TEST_F(GroupReceivesTest, AGroupHasAnEnd) {
  // 200 KB each: 20 go into one message of 4 MB.
  for (int i = 0; i < 30; ++i) Unary(kWorker, "Neg", Read(Variable(absl::StrCat("v", i), 50000)), absl::StrCat("x", i));
  EXPECT_THAT(Groups(kWorker), ElementsAre(testing::SizeIs(20), testing::SizeIs(10)));
}

TEST_F(GroupReceivesTest, PeersOfOtherKindsAreAskedOneByOne) {
  Unary(kWorker, "Neg", Read(Variable("a", 10)), "x");
  Unary(kWorker, "Neg", Read(Variable("b", 10)), "y");
  EXPECT_THAT(Groups(kWorker, /*speak=*/false), IsEmpty());
}

TEST(RecvTensorsCodecTest, WhatIsWrittenIsReadAndNonsenseIsRefused) {
  const net::Bytes request = EncodeRecvTensors(7, {"a", "", "b"}).value();
  const RecvTensorsCall call = DecodeRecvTensors(request).value();
  EXPECT_EQ(call.step_id, 7);
  EXPECT_THAT(call.keys, ElementsAre("a", "", "b"));

  const std::vector<RendezvousItem> items = {
      {Tensor::Of<float>({1, 2}), false}, {Tensor(), true}, {Tensor(DType::kFloat, Shape({100000})), false}};
  const net::Bytes answer = EncodeRecvTensorsAnswer(items, 1).value();
  const std::vector<RendezvousItem> read = DecodeRecvTensorsAnswer(answer, Allocator::Heap()).value();
  ASSERT_EQ(read.size(), 3);
  EXPECT_THAT(read[0].tensor.flat<float>(), ElementsAre(1, 2));
  EXPECT_TRUE(read[1].is_dead);
  EXPECT_EQ(read[2].tensor.num_elements(), 100000);

  // Whatever is cut off, fewer are read or none.
  const std::string text = answer.Flatten();
  for (size_t cut = 0; cut < 100; ++cut) {
    const StatusOr<std::vector<RendezvousItem>> less =
        DecodeRecvTensorsAnswer(net::Bytes::Of(text.substr(0, cut)), Allocator::Heap());
    EXPECT_TRUE(!less.ok() || less->size() < 3) << cut;
  }
  EXPECT_THAT(DecodeRecvTensors(net::Bytes::Of("\x12\x7f")).status().message(), HasSubstr("RecvTensorsRequest"));
  EXPECT_FALSE(DecodeRecvTensorsAnswer(net::Bytes::Of("\x0a\x02\x0a\x7f"), Allocator::Heap()).ok());
}

}  // namespace
}  // namespace millrace
