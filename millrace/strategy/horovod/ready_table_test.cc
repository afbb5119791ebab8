#include "millrace/strategy/horovod/ready_table.h"

#include "gmock/gmock.h"

namespace millrace::hvd {
namespace {

using Kind = NamedCollective::Kind;
using collective::Reduction;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Announcement Announced(const std::string& name, std::vector<int64_t> dims = {2, 3}) {
  return {.name = name, .dtype = DType::kFloat, .dims = std::move(dims)};
}
Report Of(std::vector<Announcement> announcements) { return {.announcements = std::move(announcements)}; }
Report Joins() { return {.joins = true}; }

std::vector<std::string> NamesOf(const std::vector<ReadyTable::Decision>& decisions) {
  std::vector<std::string> names;
  for (const auto& decision : decisions) names.push_back(decision.what.name);
  return names;
}

TEST(ReadyTable, AnOperationIsReadyWhenAllRanksHaveAnnouncedIt) {
  ReadyTable table(3, 8);
  table.Add(0, Of({Announced("a"), Announced("b")}));
  table.Add(1, Of({Announced("b"), Announced("a")}));
  EXPECT_THAT(table.TakeReady(), IsEmpty());
  EXPECT_THAT(table.Missing("a"), ElementsAre(2));
  table.Add(2, Of({Announced("b")}));
  EXPECT_THAT(NamesOf(table.TakeReady()), ElementsAre("b"));
  table.Add(2, Of({Announced("a")}));
  EXPECT_THAT(NamesOf(table.TakeReady()), ElementsAre("a"));
  EXPECT_THAT(table.TakeReady(), IsEmpty());
}

TEST(ReadyTable, RanksThatDifferAreNamedWithWhatTheyHave) {
  ReadyTable table(3, 8);
  table.Add(0, Of({Announced("a")}));
  table.Add(1, Of({Announced("a")}));
  table.Add(2, Of({Announced("a", {2, 4})}));
  const auto ready = table.TakeReady();
  ASSERT_EQ(ready.size(), 1u);
  EXPECT_EQ(ready[0].status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(ready[0].status.message()),
              AllOf(HasSubstr("rank 0 has allreduce 'a' (the sum of float[2,3])"), HasSubstr("rank 2 has"),
                    HasSubstr("float[2,4]")));
  EXPECT_EQ(table.num_slots(), 0u);
}

TEST(ReadyTable, OnlyTheRowsOfAnAllgatherMayDiffer) {
  const auto gather = [](std::vector<int64_t> dims) {
    return Announcement{.kind = Kind::kAllgather, .name = "g", .dtype = DType::kInt32, .dims = std::move(dims)};
  };
  ReadyTable table(2, 8);
  table.Add(0, Of({gather({5, 2})}));
  table.Add(1, Of({gather({0, 2})}));
  EXPECT_EQ(table.TakeReady()[0].status, absl::OkStatus());
  EXPECT_EQ(table.num_slots(), 0u) << "the next one may have other rows";
  table.Add(0, Of({gather({5, 2})}));
  table.Add(1, Of({gather({5, 3})}));
  EXPECT_EQ(table.TakeReady()[0].status.code(), absl::StatusCode::kInvalidArgument);
}

TEST(ReadyTable, ASlotIsLostWhenSomethingElseIsAnnouncedUnderItsName) {
  ReadyTable table(2, 2);
  for (int rank = 0; rank < 2; ++rank) table.Add(rank, Of({Announced("a"), Announced("b"), Announced("c")}));
  EXPECT_EQ(table.TakeReady().size(), 3u);
  EXPECT_EQ(table.num_slots(), 2u) << "there are at most two";
  EXPECT_EQ(table.FindSlot(Announced("a")), 0);
  EXPECT_EQ(table.FindSlot(Announced("b")), 1);
  EXPECT_EQ(table.FindSlot(Announced("b", {9})), -1);
  EXPECT_EQ(table.FindSlot(Announced("c")), -1);
  EXPECT_EQ(table.DecideSlot(1)->what, Announced("b"));

  table.Add(1, Of({Announced("b", {9})}));
  EXPECT_EQ(table.FindSlot(Announced("b")), -1);
  EXPECT_EQ(table.DecideSlot(1), std::nullopt);
  table.Add(0, Of({Announced("b", {9})}));
  EXPECT_EQ(table.TakeReady().size(), 1u);
  EXPECT_EQ(table.FindSlot(Announced("b", {9})), 1) << "the place is used again";
}

TEST(ReadyTable, ARankThatHasJoinedIsNotWaitedFor) {
  ReadyTable table(3, 8);
  table.Add(1, Joins());
  table.Add(0, Of({Announced("a")}));
  table.Add(2, Of({Announced("a")}));
  EXPECT_EQ(table.TakeReady()[0].status, absl::OkStatus());
  EXPECT_EQ(table.TakeJoin(), std::nullopt);

  Announcement smallest = Announced("m");
  smallest.reduction = Reduction::kMin;
  const Announcement from_1{.kind = Kind::kBroadcast, .name = "b", .dtype = DType::kFloat, .dims = {1}, .root = 1};
  for (const int rank : {0, 2}) table.Add(rank, Of({smallest, from_1}));
  for (const auto& decision : table.TakeReady()) {
    EXPECT_EQ(decision.status.code(), absl::StatusCode::kFailedPrecondition) << decision.status;
    EXPECT_THAT(std::string(decision.status.message()), HasSubstr("rank 1 has joined"));
  }

  table.Add(2, Joins());
  table.Add(0, Joins());
  EXPECT_EQ(table.TakeJoin(), 0);
  EXPECT_FALSE(table.joined(1));
  EXPECT_EQ(table.TakeJoin(), std::nullopt);
}

TEST(Report, IsReadAsItWasWritten) {
  Report report = Of({Announced("a"), Announced("", {}), Announced("c", {0, int64_t{1} << 40})});
  report.announcements[1].kind = Kind::kBroadcast;
  report.announcements[1].root = 17;
  report.announcements[2].reduction = Reduction::kProduct;
  report.joins = true;
  const std::string bytes = EncodeReport(report);
  const auto read = DecodeReport(bytes);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->announcements, report.announcements);
  EXPECT_TRUE(read->joins);
  // No prefix of it is one.
  for (size_t length = 0; length < bytes.size(); ++length)
    EXPECT_FALSE(DecodeReport(absl::string_view(bytes).substr(0, length)).ok()) << length;
  EXPECT_FALSE(DecodeReport(bytes + "x").ok());
}

}  // namespace
}  // namespace millrace::hvd
