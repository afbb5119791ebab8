// Connections in excess, and connections that go silent.
#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <vector>

#include "absl/strings/match.h"
#include "millrace/base/fd.h"
#include "millrace/net/grpc/channel.h"
#include "millrace/net/grpc/grpc_transport.h"
#include "millrace/net/lane/lane_proxy_testing.h"
#include "millrace/net/transport_testing.h"

namespace millrace::net {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(30);

Status CallEcho(Transport& transport, const std::string& address) {
  Answer answer;
  transport.Connect(address)->Call(TestService::FullName("Echo"), Bytes::Of("x"), {.timeout = kPatience},
                                   answer.Done());
  EXPECT_TRUE(answer.notification().WaitFor(2 * kPatience));
  return answer.status();
}

// Lowers the limit of descriptors for a while. Those that are open stay open.
class FewDescriptors {
 public:
  // `more` than are open now.
  explicit FewDescriptors(int more) {
    EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &before_), 0);
    const Fd next(open("/dev/null", O_RDONLY | O_CLOEXEC));
    rlimit few = before_;
    few.rlim_cur = static_cast<rlim_t>(next.get() + more);
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  }
  ~FewDescriptors() { EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before_), 0); }

 private:
  rlimit before_{};
};

class GrpcConnectionsTest : public ::testing::Test {
 protected:
  GrpcConnectionsTest() {
    service_.On("Echo", Echo);
    service_.On("Hold", held_.Handler());
    listener_ = server_->Listen("127.0.0.1:0", &service_).value();
    address_ = absl::StrCat("127.0.0.1:", listener_->port());
  }
  // Sockets that are not connected yet: connecting them takes descriptors at the server's side only.
  static std::vector<Fd> Strangers(int count) {
    std::vector<Fd> sockets;
    for (int i = 0; i < count; ++i) sockets.emplace_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    return sockets;
  }
  void Connect(const Fd& fd) {
    sockaddr_in name{};
    name.sin_family = AF_INET;
    name.sin_port = htons(static_cast<uint16_t>(listener_->port()));
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&name), sizeof(name)), 0);
  }

  HeldCalls held_;
  TestService service_;
  std::unique_ptr<Transport> server_ = NewGrpcTransport();
  std::unique_ptr<Transport> client_ = NewGrpcTransport();
  std::unique_ptr<Listener> listener_;
  std::string address_;
};

TEST_F(GrpcConnectionsTest, MoreConnectionsThanDescriptorsAreRefusedAndLaterOnesServed) {
  const auto connected = client_->Connect(address_);
  ASSERT_EQ(CallEcho(*client_, address_), absl::OkStatus());
  {
    std::vector<Fd> strangers = Strangers(120);
    const FewDescriptors few(40);
    for (const Fd& stranger : strangers) Connect(stranger);
    ASSERT_TRUE(WaitUntil([&] { return server_->status().excess_connections >= 80; }));
    // A client that is connected is served meanwhile.
    EXPECT_EQ(CallEcho(*client_, address_), absl::OkStatus());
    strangers.clear();
    const auto newcomer = NewGrpcTransport();
    EXPECT_TRUE(WaitUntil([&] { return CallEcho(*newcomer, address_).ok(); }));
  }
  EXPECT_EQ(CallEcho(*NewGrpcTransport(), address_), absl::OkStatus());
  EXPECT_TRUE(absl::StrContains(server_->status().last_excess, "127.0.0.1:")) << server_->status().last_excess;
}

TEST_F(GrpcConnectionsTest, WithoutASingleDescriptorConnectionsAreRefusedInsteadOfLeftWaiting) {
  const auto connected = client_->Connect(address_);
  ASSERT_EQ(CallEcho(*client_, address_), absl::OkStatus());
  std::vector<Fd> strangers = Strangers(20);
  std::vector<Fd> used;
  {
    const FewDescriptors few(8);
    for (Fd fd(open("/dev/null", O_RDONLY | O_CLOEXEC)); fd.ok(); fd = Fd(open("/dev/null", O_RDONLY | O_CLOEXEC)))
      used.push_back(std::move(fd));
    for (const Fd& stranger : strangers) {
      Connect(stranger);
      char byte;
      EXPECT_LE(recv(stranger.get(), &byte, 1, 0), 0);  // it was closed
    }
    used.clear();
  }
  EXPECT_TRUE(WaitUntil([&] { return server_->status().excess_connections >= 20; }));  // counted after it is closed
  EXPECT_EQ(CallEcho(*NewGrpcTransport(), address_), absl::OkStatus());
}

class SilentConnectionTest : public GrpcConnectionsTest {
 protected:
  SilentConnectionTest() { proxy_.set_target(listener_->port()); }
  Answer Hold() {
    Answer answer;
    client_->Connect(via_)->Call(TestService::FullName("Hold"), {}, {}, answer.Done());
    EXPECT_TRUE(WaitUntil([&] { return held_.size() == 1; }));
    return answer;
  }

  LaneProxy proxy_;
  const std::string via_ = absl::StrCat("127.0.0.1:", proxy_.port());
  // Goes before the proxy.
  std::unique_ptr<Transport> client_ = NewGrpcTransport({.silence_check = absl::Milliseconds(50)});
};

TEST_F(SilentConnectionTest, AConnectionThatGoesSilentWhileNewOnesWorkIsReplaced) {
  const auto channel = client_->Connect(via_);
  const Answer held = Hold();
  proxy_.Silence();
  ASSERT_TRUE(held.notification().WaitFor(kPatience));
  EXPECT_EQ(held.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(absl::StrContains(held.status().message(), "went silent")) << held.status();
  EXPECT_TRUE(absl::StrContains(held.status().message(), via_)) << held.status();
  EXPECT_EQ(CallEcho(*client_, via_), absl::OkStatus());
  EXPECT_EQ(proxy_.connections(), 2);
  held_.Take()->Reply(Bytes());
}

TEST_F(SilentConnectionTest, ItIsReplacedAlsoIfEachCallIsGivenUpSooner) {
  const auto channel = client_->Connect(via_);
  ASSERT_EQ(CallEcho(*client_, via_), absl::OkStatus());
  proxy_.Silence();
  Answer answer;
  channel->Call(TestService::FullName("Echo"), {}, {.timeout = absl::Milliseconds(1)}, answer.Done());
  ASSERT_TRUE(answer.notification().WaitFor(kPatience));
  ASSERT_TRUE(WaitUntil([&] { return proxy_.connections() == 2; }));
  EXPECT_TRUE(WaitUntil([&] {
    Answer again;
    channel->Call(TestService::FullName("Echo"), {}, {.timeout = absl::Milliseconds(100)}, again.Done());
    again.notification().Wait();
    return again.status().ok();
  }));
}

TEST_F(SilentConnectionTest, ACallOfAClientThatVanishedIsCancelledAtTheServer) {
  listener_.reset();
  server_ = NewGrpcTransport({.ping_interval = absl::Milliseconds(100), .ping_timeout = absl::Seconds(1)});
  listener_ = server_->Listen("127.0.0.1:0", &service_).value();
  proxy_.set_target(listener_->port());
  client_ = NewGrpcTransport({.silence_check = absl::Hours(1)});
  const Answer held = Hold();
  proxy_.Silence();
  const auto call = held_.Take();
  EXPECT_TRUE(WaitUntil([&] { return call->cancellation()->IsCancelled(); }));
  call->Reply(Bytes());
}

TEST_F(SilentConnectionTest, ACallThatIsServedForLongIsLeftAlone) {
  const Answer held = Hold();
  // Long enough for several rounds of probes, which are answered.
  Notification never;
  never.WaitFor(absl::Milliseconds(50) * 3 * GrpcChannel::kTicksToReconnect);
  EXPECT_FALSE(held.notification().HasBeenNotified());
  EXPECT_EQ(proxy_.connections(), 1);
  held_.Take()->Reply(Bytes());
  ASSERT_TRUE(held.notification().WaitFor(kPatience));
  EXPECT_EQ(held.status(), absl::OkStatus());
}

}  // namespace
}  // namespace millrace::net
