#include "millrace/net/connection_table.h"

#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "millrace/net/grpc/grpc_transport.h"
#include "millrace/net/transport_testing.h"

namespace millrace::net {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;
using State = ConnectionTable::State;

TEST(NormalPeer, IsOneFormForEveryWayToWriteAnEnd) {
  EXPECT_EQ(NormalPeer("ipv4:127.0.0.1:40000"), "127.0.0.1:40000");
  EXPECT_EQ(NormalPeer("ipv6:[::1]:40000"), "[::1]:40000");
  EXPECT_EQ(NormalPeer("ipv6:[0:0:0:0:0:0:0:1]:40000"), "[::1]:40000");
  EXPECT_EQ(NormalPeer("ipv6:[::ffff:10.0.0.7]:1"), "10.0.0.7:1");
  for (const char* other :
       {"", "inproc", "unix:/run/x", "ipv4:host:1", "ipv4:1.2.3.4", "ipv6:1.2.3.4:5", "ipv4:1.2.3.4:99999"}) {
    EXPECT_EQ(NormalPeer(other), "") << other;
  }
}

TEST(TcpTable, GivesTheEstablishedEndsOfOnePort) {
  constexpr absl::string_view kTcp =
      "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
      "   0: 0100007F:08AE 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1\n"
      "   1: 0100007F:08AE 0100007F:9C40 01 00000000:00000000 00:00000000 00000000     0        0 1 1\n"
      "   2: 0100007F:9C40 0100007F:08AE 01 00000000:00000000 00:00000000 00000000     0        0 1 1\n"
      "   3: 0100007F:08AE 0100007F:9C41 06 00000000:00000000 00:00000000 00000000     0        0 1 1\n"
      "   4: 0100007F:08AF 0100007F:9C42 01 00000000:00000000 00:00000000 00000000     0        0 1 1\n"
      "   5: 0100007F:08AE zz00007F:9C43 01\n   6: short";
  constexpr absl::string_view kTcp6 =
      "   1: 00000000000000000000000001000000:08AE 00000000000000000000000001000000:9C44 01 0\n"
      "   1: 0000000000000000FFFF00000100007F:08AE 0000000000000000FFFF00000700000A:9C45 01 0\n";
  absl::flat_hash_set<std::string> ends;
  EXPECT_TRUE(ReadTcpTable(kTcp, 2222, &ends));
  EXPECT_THAT(ends, UnorderedElementsAre("127.0.0.1:40000"));
  EXPECT_FALSE(ReadTcpTable(kTcp6, 2222, &ends));
  EXPECT_THAT(ends, UnorderedElementsAre("127.0.0.1:40000", "[::1]:40004", "10.0.0.7:40005"));
}

TEST(TcpTable, KnowsNothingWhereTheKernelTellsNothing) {
  const std::vector<std::string> peers = {"ipv4:127.0.0.1:1", "inproc"};
  TcpConnectionTable missing("/nonexistent");
  missing.set_local_port(1);
  EXPECT_THAT(missing.Look(peers), ElementsAre(State::kUnknown, State::kUnknown));
  TcpConnectionTable table;
  EXPECT_THAT(table.Look(peers), ElementsAre(State::kUnknown, State::kUnknown));
  table.set_local_port(1);  // nobody listens there
  EXPECT_THAT(table.Look(peers), ElementsAre(State::kUnknown, State::kUnknown));
}

TEST(TcpTable, FollowsAConnectionOfGrpc) {
  for (const std::string host : {"127.0.0.1", "[::1]", "localhost"}) {
    // The caller is told who it is.
    TestService service;
    service.On("WhoAmI", [](std::shared_ptr<IncomingCall> call) { call->Reply(Bytes::Of(call->peer())); });
    std::string peer;
    auto server = NewGrpcTransport();
    StatusOr<std::unique_ptr<Listener>> listener = server->Listen(host + ":0", &service);
    if (!listener.ok() && host == "[::1]") continue;  // a machine without IPv6
    ASSERT_EQ(listener.status(), absl::OkStatus());
    TcpConnectionTable table;
    table.set_local_port((*listener)->port());
    {
      auto client = NewGrpcTransport();
      const auto channel = client->Connect(absl::StrCat(host, ":", (*listener)->port()));
      Answer answer;
      channel->Call(TestService::FullName("WhoAmI"), {}, {}, answer.Done());
      answer.notification().Wait();
      ASSERT_EQ(answer.status(), absl::OkStatus());
      peer = answer.result()->Flatten();
      EXPECT_THAT(table.Look({peer}), ElementsAre(State::kConnected)) << peer;
    }
    // The kernel closes it soon after the client has.
    Notification never;
    for (int i = 0; i < 1000 && table.Look({peer})[0] != State::kGone; ++i) never.WaitFor(absl::Milliseconds(10));
    EXPECT_THAT(table.Look({peer}), ElementsAre(State::kGone)) << peer;
  }
}

}  // namespace
}  // namespace millrace::net
