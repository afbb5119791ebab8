#include "millrace/cluster/watch/task_rates.h"

#include "gtest/gtest.h"
#include "millrace/cluster/watch/two_looks_testing.h"

namespace millrace {
namespace {

TEST(TaskRates, PeersAreNamedAndTheirBytesCounted) {
  TwoLooks looks;
  looks.Ps(0, 0.3).Worker(0).Moves(1, 0, 0.5).Moves(0, 1, 0.5, false);
  const std::vector<TaskRate> rates = RatesOf(looks.before, looks.after, {.same_host = 10, .between_hosts = 2});
  ASSERT_EQ(rates[1].peers.size(), 1u);
  const PeerRate& peer = rates[1].peers[0];
  EXPECT_EQ(peer.peer, "/job:ps/replica:0/task:0");
  EXPECT_TRUE(peer.outgoing);
  EXPECT_EQ(peer.lane, "tcp");
  EXPECT_EQ(peer.bytes_sent, 5'250'000'000);
  EXPECT_NEAR(peer.gigabytes_per_second, 0.5, 1e-6);
  EXPECT_NEAR(peer.calls_per_second, 50, 1e-6);
  EXPECT_NEAR(peer.share, 0.25, 1e-6);
  EXPECT_EQ(rates[0].peers[0].peer, "10.0.0.1:41234");
  EXPECT_NEAR(rates[0].gigabytes_per_second, 0.5, 1e-6);
}

TEST(TaskRates, ALaneOverSharedMemoryIsWithinTheHostWhateverThePeerIsCalled) {
  const Ceilings ceilings{.same_host = 10, .between_hosts = 2};
  for (const auto& [lane, share] : {std::pair("shm", 0.1), std::pair("tcp", 0.5)}) {
    const TwoLooks looks = TwoLooks().Ps(0, 0.3).Worker(0).Moves(0, 1, 1, false, lane);
    EXPECT_NEAR(RatesOf(looks.before, looks.after, ceilings)[0].peers[0].share, share, 1e-6) << lane;
  }
}

TEST(TaskRates, APeerThatIsNewCountsFromNothing) {
  TwoLooks looks;
  looks.Ps(0, 0.3).Worker(0).Moves(1, 0, 1);
  looks.before[1].status.clear_peers();
  EXPECT_NEAR(RatesOf(looks.before, looks.after, {})[1].gigabytes_per_second, 11, 1e-6);
}

TEST(TaskRates, APeerThatLostAConnectionHasNoRate) {
  TwoLooks looks;
  looks.Ps(0, 0.3).Worker(0).Moves(1, 0, 1);
  looks.after[1].status.mutable_peers(0)->set_bytes_sent(4'000'000'000);
  EXPECT_NEAR(RatesOf(looks.before, looks.after, {})[1].gigabytes_per_second, 0.5, 1e-6);
  EXPECT_EQ(RatesOf(looks.before, looks.after, {})[1].peers[0].bytes_sent, 4'000'000'000);
}

TEST(TaskRates, ConnectionsOfOneNameAreOnePeer) {
  TwoLooks looks;
  looks.Ps(0, 0.3).Worker(0).Moves(0, 1, 1, false).Moves(0, 1, 2, false);
  const std::vector<TaskRate> rates = RatesOf(looks.before, looks.after, {});
  ASSERT_EQ(rates[0].peers.size(), 1u);
  EXPECT_NEAR(rates[0].peers[0].gigabytes_per_second, 3, 1e-6);
}

}  // namespace
}  // namespace millrace
