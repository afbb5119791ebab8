#include "millrace/cluster/collectives/group_table.h"

#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "millrace/cluster/collectives/ring_layout.h"

namespace millrace {
namespace {

JoinRequest Joining(int task, int size, int cpu = 0, uint64_t incarnation = 7) {
  JoinRequest request{.key = 1, .size = size, .device_type = "CPU"};
  request.device.set_name(absl::StrCat("/job:worker/replica:0/task:", task, "/device:CPU:", cpu));
  request.device.set_device_type("CPU");
  request.device.set_incarnation(incarnation);
  return request;
}

// Joins, and keeps what came of it.
struct Member {
  uint64_t Join(GroupTable& table, const JoinRequest& request) {
    return table.Join(request, [this](StatusOr<JoinedGroup> joined) {
      ++calls;
      result = std::move(joined);
    });
  }
  int calls = 0;
  StatusOr<JoinedGroup> result = Unavailable("nothing came");
};

TEST(GroupTable, AGroupIsCompleteWhenAllHaveJoinedAndItsRanksAreInTheOrderOfTheNames) {
  GroupTable table;
  Member a, b, c;
  EXPECT_NE(a.Join(table, Joining(1, 3, 1)), 0u);
  EXPECT_NE(b.Join(table, Joining(0, 3)), 0u);
  EXPECT_EQ(a.calls, 0);
  EXPECT_EQ(table.Progress(1),
            "2 of 3 devices: /job:worker/replica:0/task:1/device:CPU:1, /job:worker/replica:0/task:0/device:CPU:0");
  EXPECT_EQ(c.Join(table, Joining(1, 3, 0)), 0u);
  ASSERT_TRUE(a.result.ok() && b.result.ok() && c.result.ok());
  const DeviceGroup& group = *a.result->group;
  EXPECT_EQ(group.RankOf("/job:worker/replica:0/task:0/device:CPU:0"), 0);
  EXPECT_EQ(group.RankOf("/job:worker/replica:0/task:1/device:CPU:0"), 1);
  EXPECT_EQ(group.RankOf("/job:worker/replica:0/task:1/device:CPU:1"), 2);
  EXPECT_EQ(group.devices_per_task(), (std::vector<int>{1, 2}));
  Member again;
  EXPECT_EQ(again.Join(table, Joining(0, 3)), 0u);
  EXPECT_EQ(again.result->group, a.result->group);
}

TEST(GroupTable, AnotherSizeOrTypeEndsTheGroupForEverybodyAndTheNextAttemptStartsAfresh) {
  GroupTable table;
  Member a, b;
  a.Join(table, Joining(0, 2));
  b.Join(table, Joining(1, 3));
  EXPECT_TRUE(absl::IsInternal(a.result.status()));
  EXPECT_TRUE(absl::StrContains(b.result.status().message(), "but that group has size 2")) << b.result.status();
  Member c, d;
  c.Join(table, Joining(0, 2));
  JoinRequest other = Joining(1, 2);
  other.device_type = "GPU";
  d.Join(table, other);
  EXPECT_TRUE(absl::StrContains(c.result.status().message(), "incompatible device type")) << c.result.status();
  Member e, f;
  e.Join(table, Joining(0, 2));
  f.Join(table, Joining(1, 2));
  EXPECT_TRUE(e.result.ok() && f.result.ok());
}

TEST(GroupTable, AFullGroupRefusesAnotherDeviceAndStays) {
  GroupTable table;
  Member a, b, c;
  a.Join(table, Joining(0, 2));
  b.Join(table, Joining(1, 2));
  c.Join(table, Joining(2, 2));
  EXPECT_TRUE(absl::StrContains(c.result.status().message(), "already full")) << c.result.status();
  EXPECT_TRUE(table.Find(1).ok());
}

TEST(GroupTable, ADeviceThatLeavesIsNotCounted) {
  GroupTable table;
  Member a, b, c;
  const uint64_t waiter = a.Join(table, Joining(0, 2));
  table.Leave(1, waiter, Cancelled("gone"));
  EXPECT_TRUE(absl::IsCancelled(a.result.status()));
  EXPECT_NE(b.Join(table, Joining(1, 2)), 0u);
  EXPECT_EQ(b.calls, 0);
  c.Join(table, Joining(0, 2));
  EXPECT_TRUE(b.result.ok());
}

TEST(GroupTable, ARestartedDeviceTakesItsPlace) {
  GroupTable table;
  Member a, b, c;
  a.Join(table, Joining(0, 2));
  b.Join(table, Joining(1, 2));
  c.Join(table, Joining(1, 2, 0, /*incarnation=*/8));
  ASSERT_TRUE(c.result.ok());
  EXPECT_NE(c.result->group, a.result->group);
  EXPECT_EQ(c.result->group->member(1).device.incarnation(), 8u);
}

TEST(GroupTable, AReleasedGroupStaysForItsMembersAndMakesRoomForAnother) {
  GroupTable table;
  Member a, b, again;
  a.Join(table, Joining(0, 2));
  b.Join(table, Joining(1, 2));
  table.Release();
  EXPECT_TRUE(table.Find(1).ok());
  again.Join(table, Joining(0, 2));
  EXPECT_EQ(again.result->group, a.result->group);
  Member other;
  EXPECT_EQ(other.Join(table, Joining(0, 1)), 0u);  // the group is in use again
  EXPECT_FALSE(other.result.ok());
  table.Release();
  Member alone;
  alone.Join(table, Joining(0, 1));
  EXPECT_TRUE(alone.result.ok());
  EXPECT_EQ(alone.result->group->size(), 1);
}

TEST(GroupTable, MalformedRequestsAreRefused) {
  GroupTable table;
  for (const int size : {0, -1, DeviceGroup::kMaxSize + 1}) {
    Member member;
    member.Join(table, Joining(0, size));
    EXPECT_TRUE(absl::IsInvalidArgument(member.result.status())) << size;
  }
  for (const char* name : {"", "/job:worker", "nonsense", "/job:worker/replica:0/task:0"}) {
    Member member;
    JoinRequest request = Joining(0, 2);
    request.device.set_name(name);
    member.Join(table, request);
    EXPECT_TRUE(absl::IsInvalidArgument(member.result.status())) << name;
  }
  EXPECT_EQ(table.Progress(1), "no device has joined");
}

TEST(InstanceTable, MembersThatDisagreeGetAnErrorThatSaysHow) {
  GroupTable table;
  Member a, b;
  a.Join(table, Joining(0, 2));
  b.Join(table, Joining(1, 2));
  InstanceTable& instances = *a.result->instances;
  InstanceRequest request{.instance_key = 5, .dtype = DType::kFloat, .shape = Shape({2}), .device = "d"};
  StatusOr<int> result;
  const auto keep = [&](const StatusOr<int>& got) { result = got; };
  EXPECT_EQ(instances.Resolve(request, keep), 0u);
  EXPECT_TRUE(result.ok());
  request.shape = Shape({3});
  instances.Resolve(request, keep);
  EXPECT_TRUE(absl::IsInvalidArgument(result.status()));
  EXPECT_TRUE(absl::StrContains(result.status().message(), "expected shape [3]")) << result.status();
  request.dtype = DType::kInt32;
  instances.Resolve(request, keep);
  EXPECT_TRUE(absl::IsInternal(result.status())) << result.status();
}

TEST(InstanceTable, ABroadcastIsKnownWhenAllHaveAskedAndNeedsExactlyOneSource) {
  GroupTable table;
  Member a, b;
  a.Join(table, Joining(0, 2));
  b.Join(table, Joining(1, 2));
  InstanceTable& instances = *a.result->instances;
  InstanceRequest first{.instance_key = 5,
                        .kind = CollectiveKind::kBroadcast,
                        .dtype = DType::kFloat,
                        .shape = Shape({2}),
                        .device = "/job:worker/replica:0/task:0/device:CPU:0"};
  InstanceRequest second = first;
  second.device = "/job:worker/replica:0/task:1/device:CPU:0";
  StatusOr<int> at_first = Unavailable("nothing came"), at_second = at_first;
  const auto ask = [&] {
    EXPECT_NE(instances.Resolve(first, [&](const StatusOr<int>& got) { at_first = got; }), 0u);
    EXPECT_EQ(instances.Resolve(second, [&](const StatusOr<int>& got) { at_second = got; }), 0u);
  };
  ask();
  EXPECT_TRUE(absl::StrContains(at_first.status().message(), "found no source for broadcast")) << at_first.status();
  first.is_source = second.is_source = true;
  ask();
  EXPECT_TRUE(absl::StrContains(at_second.status().message(), "second claim")) << at_second.status();
  first.is_source = false;
  ask();
  EXPECT_EQ(*at_first, 1);
  EXPECT_EQ(*at_second, 1);
}

TEST(RingLayout, PiecesAreRoundedUpAsTensorFlowDoes) {
  // Facts about TensorFlow's AlignedChunkElts with 64-byte alignment.
  EXPECT_EQ(AlignedChunk(4, 8, 2), 16);
  EXPECT_EQ(AlignedChunk(4, 1000, 2), 512);
  EXPECT_EQ(AlignedChunk(4, 32, 2), 32);  // a whole multiple gets a further one
  EXPECT_EQ(AlignedChunk(8, 1, 4), 8);
}

TEST(RingLayout, EveryMemberOfATreeGetsTheValueOnce) {
  for (int size = 1; size <= 17; ++size) {
    for (int source = 0; source < size; ++source) {
      BroadcastTree tree{.members = std::vector<int>(static_cast<size_t>(size)), .source = source};
      std::vector<int> received(static_cast<size_t>(size), 0);
      for (int from = 0; from < size; ++from) {
        for (const int to : tree.SendsTo(from)) {
          EXPECT_EQ(tree.ReceivesFrom(to), from) << size << " " << source;
          ++received[to];
        }
      }
      for (int to = 0; to < size; ++to) EXPECT_EQ(received[to], to == source ? 0 : 1) << size << " " << source;
    }
  }
}

}  // namespace
}  // namespace millrace
