// Rejected connections and malformed frames.
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/match.h"
#include "millrace/base/clock.h"
#include "millrace/net/lane/frame_parser.h"
#include "millrace/net/lane/hello.h"
#include "millrace/net/lane/lane_channel.h"
#include "millrace/net/lane/lane_testing.h"
#include "millrace/net/lane/sockets.h"

namespace millrace::net {
namespace {

// A raw connection that sends what the test wants.
class RawConnection {
 public:
  explicit RawConnection(StatusOr<Fd> fd) : parser_({}, Allocator::Heap()) {
    EXPECT_TRUE(fd.ok()) << fd.status();
    if (fd.ok()) fd_ = std::move(*fd);
  }
  void Say(absl::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent < 0 && errno == EAGAIN) {
        pollfd waiting{fd_.get(), POLLOUT, 0};
        if (poll(&waiting, 1, 30'000) > 0) continue;
      }
      if (sent <= 0) return;  // it was closed
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
  }
  void Say(FrameHeader header, Bytes message = {}) { Say(MakeFrame(header, std::move(message), 0, 0).head); }
  // A frame, or nothing when the other side closes.
  std::optional<Frame> Hear() {
    while (frames_.empty()) {
      pollfd waiting{fd_.get(), POLLIN, 0};
      if (poll(&waiting, 1, 30'000) <= 0) {
        ADD_FAILURE() << "nothing is said";
        return std::nullopt;
      }
      const iovec room = parser_.Room().front();
      const ssize_t got = recv(fd_.get(), room.iov_base, room.iov_len, 0);
      if (got <= 0) return std::nullopt;
      EXPECT_TRUE(parser_.Parse(static_cast<size_t>(got), &frames_).ok());
    }
    Frame frame = std::move(frames_.front());
    frames_.erase(frames_.begin());
    return frame;
  }
  bool HearsTheEnd() {
    while (auto frame = Hear()) {
    }
    return !::testing::Test::HasFailure();
  }

 private:
  Fd fd_;
  FrameParser parser_;
  std::vector<Frame> frames_;
};

class LaneAbuseTest : public LaneTest {
 protected:
  LaneOffer AskForOffer() {
    Answer answer;
    auto channel = plain_->Connect(address_);
    channel->Call(kOfferMethod, Serialize(LaneOfferRequest()), {}, answer.Done());
    answer.notification().Wait();
    LaneOffer offer;
    EXPECT_TRUE(answer.result().ok()) << answer.status();
    EXPECT_TRUE(answer.result().ok() && Parse(*answer.result(), &offer).ok());
    return offer;
  }
  static HelloBody Hello(const LaneOffer& offer) {
    HelloBody hello;
    std::memcpy(hello.secret.data(), offer.secret().data(), hello.secret.size());
    hello.window = 1 << 20;
    return hello;
  }
  // Past the handshake.
  RawConnection Connected() {
    const LaneOffer offer = AskForOffer();
    RawConnection connection(ConnectUnix(offer.unix_socket()));
    connection.Say({.kind = FrameKind::kHello}, BodyBytes(Hello(offer)));
    auto welcome = connection.Hear();
    EXPECT_TRUE(welcome.has_value() && welcome->header.kind == FrameKind::kWelcome);
    connection.Say({.kind = FrameKind::kReady});
    return connection;
  }
  uint64_t refused() { return server_->status().refused_connections; }
  bool Counts(uint64_t count) {
    return WaitUntil([&] { return refused() == count; });
  }

  std::unique_ptr<Transport> plain_ = NewGrpcTransport();
};

TEST_F(LaneAbuseTest, AWrongSecretIsRefusedAndCounted) {
  StartWithLane();
  const LaneOffer offer = AskForOffer();
  HelloBody hello = Hello(offer);
  hello.secret[5] ^= 1;
  RawConnection connection(ConnectUnix(offer.unix_socket()));
  connection.Say({.kind = FrameKind::kHello}, BodyBytes(hello));
  auto answer = connection.Hear();
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->header.kind, FrameKind::kError);
  EXPECT_TRUE(absl::StrContains(answer->message.Take().Flatten(), "secret"));
  EXPECT_TRUE(connection.HearsTheEnd());
  EXPECT_TRUE(Counts(1));
  EXPECT_TRUE(CallOn(*channel_, "Echo").ok());
}

TEST_F(LaneAbuseTest, ASecretIsGoodForOneConnection) {
  Start();
  const LaneOffer offer = AskForOffer();
  for (int i = 0; i < 2; ++i) {
    RawConnection connection(ConnectUnix(offer.unix_socket()));
    connection.Say({.kind = FrameKind::kHello}, BodyBytes(Hello(offer)));
    auto answer = connection.Hear();
    ASSERT_TRUE(answer.has_value());
    EXPECT_EQ(answer->header.kind, i == 0 ? FrameKind::kWelcome : FrameKind::kError);
  }
}

TEST_F(LaneAbuseTest, ASecretExpires) {
  VirtualClock clock(Clock::Real()->Now());
  Start({.clock = &clock});
  const LaneOffer offer = AskForOffer();
  clock.Advance(absl::Minutes(1));
  RawConnection connection(ConnectUnix(offer.unix_socket()));
  connection.Say({.kind = FrameKind::kHello}, BodyBytes(Hello(offer)));
  auto answer = connection.Hear();
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->header.kind, FrameKind::kError);
  EXPECT_TRUE(connection.HearsTheEnd());
  // The clock goes before the fixture.
  channel_.reset();
  listener_.reset();
  client_.reset();
  server_.reset();
}

TEST_F(LaneAbuseTest, AConnectionThatSaysNothingIsClosedAndCounted) {
  Start({.handshake_timeout = absl::Milliseconds(100)});
  const LaneOffer offer = AskForOffer();
  RawConnection local(ConnectUnix(offer.unix_socket()));
  EXPECT_TRUE(local.HearsTheEnd());
  RawConnection tcp(
      ConnectTcp({"127.0.0.1"}, static_cast<int>(offer.tcp_port()), Clock::Real()->Now() + absl::Seconds(10), -1));
  EXPECT_TRUE(tcp.HearsTheEnd());
  EXPECT_TRUE(Counts(2));
}

TEST_F(LaneAbuseTest, GarbageIsRefusedAndCounted) {
  StartWithLane();
  const LaneOffer offer = AskForOffer();
  std::string noise(100'000, '\0');
  for (size_t i = 0; i < noise.size(); ++i) noise[i] = static_cast<char>(i * 7919 >> 3);
  const std::string texts[] = {"GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: somebody who is lost\r\n\r\n",
                               noise,
                               std::string(1000, '\0'),
                               std::string(1000, '\xff'),
                               MakeFrame({.kind = FrameKind::kCall, .call = 1}, {}, 0, 0).head,
                               MakeFrame({.kind = FrameKind::kHello}, Bytes::Of("hello"), 0, 0).head};
  uint64_t count = 0;
  for (const std::string& text : texts) {
    for (const bool local : {true, false}) {
      RawConnection connection(local ? ConnectUnix(offer.unix_socket())
                                     : ConnectTcp({"127.0.0.1"}, static_cast<int>(offer.tcp_port()),
                                                  Clock::Real()->Now() + absl::Seconds(10), -1));
      connection.Say(text);
      EXPECT_TRUE(connection.HearsTheEnd());
      EXPECT_TRUE(Counts(++count));
    }
  }
  EXPECT_TRUE(CallOn(*channel_, "Echo").ok());
}

TEST_F(LaneAbuseTest, ABadFrameEndsItsConnectionOnly) {
  StartWithLane();
  const auto flipped = [](OutFrame frame) {
    frame.head.back() ^= 1;
    return frame.head;
  };
  const std::string frames[] = {
      flipped(MakeFrame({.kind = FrameKind::kCall, .call = 1}, Bytes::Of("text"), 0, 0)),
      MakeFrame({.kind = FrameKind::kCall, .method = 999, .call = 1}, {}, 0, 0).head,
      MakeFrame({.kind = FrameKind::kCall, .call = 0}, {}, 0, 0).head,
      MakeFrame({.kind = FrameKind::kMessage, .call = 5}, {}, 0, 0).head,
      MakeFrame({.kind = FrameKind::kCancel, .call = 5}, {}, 0, 0).head,
      MakeFrame({.kind = FrameKind::kAnswer, .call = 1}, {}, 0, 0).head,
      MakeFrame({.kind = static_cast<FrameKind>(99)}, {}, 0, 0).head,
      MakeFrame({.kind = FrameKind::kHello}, {}, 0, 0).head,
      // The raw client said that its memory is not to be read.
      MakeFrame({.kind = FrameKind::kCall, .call = 1}, Bytes::Of(std::string(100'000, 'x')), 1000, 1).head,
      // The same number twice ("Hold" is method 1), and a message to a call that takes none.
      MakeFrame({.kind = FrameKind::kCall, .method = 1, .call = 1}, {}, 0, 0).head +
          MakeFrame({.kind = FrameKind::kCall, .method = 1, .call = 1}, {}, 0, 0).head,
      MakeFrame({.kind = FrameKind::kCall, .method = 1, .call = 1}, {}, 0, 0).head +
          MakeFrame({.kind = FrameKind::kMessage, .call = 1}, {}, 0, 0).head,
      // A message where none belongs.
      MakeFrame({.kind = FrameKind::kCall, .method = 1, .call = 1}, {}, 0, 0).head +
          MakeFrame({.kind = FrameKind::kCancel, .call = 1}, Bytes::Of("x"), 0, 0).head,
      MakeFrame({.kind = FrameKind::kCredit, .argument = 1}, Bytes::Of("x"), 0, 0).head,
  };
  uint64_t count = 0;
  for (const std::string& frame : frames) {
    RawConnection connection = Connected();
    connection.Say(frame);
    EXPECT_TRUE(connection.HearsTheEnd()) << &frame - frames;
    EXPECT_TRUE(Counts(++count)) << &frame - frames;
    EXPECT_TRUE(CallOn(*channel_, "Echo").ok());
    while (held_.size() > 0) held_.Take()->Reply(Bytes());
  }
  EXPECT_EQ(Outgoing(*client_).kind, "shm");
}

TEST_F(LaneAbuseTest, APeerThatIgnoresFlowControlIsDisconnected) {
  StartWithLane({.window = 1 << 20});
  RawConnection connection = Connected();
  // "Hold", method 1, takes none of the messages of its stream.
  connection.Say({.kind = FrameKind::kCall, .flags = kFlagStreams, .method = 1, .call = 1, .argument = kNoTimeout});
  const OutFrame frame =
      MakeFrame({.kind = FrameKind::kMessage, .call = 1}, Bytes::Of(std::string(1 << 20, 'x')), 0, 0);
  const std::string message = frame.head + frame.bulk.Flatten();
  for (int i = 0; i < 100 && refused() == 0; ++i) connection.Say(message);
  EXPECT_TRUE(connection.HearsTheEnd());
  EXPECT_TRUE(Counts(1));
  EXPECT_TRUE(CallOn(*channel_, "Echo").ok());
  while (held_.size() > 0) held_.Take()->Reply(Bytes());
  EXPECT_TRUE(WaitUntil([&] { return server_->status().received_blocks == 0; }));
}

TEST_F(LaneAbuseTest, MoreEmptyMessagesThanAnybodyTakesEndTheConnection) {
  StartWithLane();
  RawConnection connection = Connected();
  connection.Say({.kind = FrameKind::kCall, .flags = kFlagStreams, .method = 1, .call = 1, .argument = kNoTimeout});
  std::string messages;
  for (int i = 0; i < 4096; ++i) messages += MakeFrame({.kind = FrameKind::kMessage, .call = 1}, {}, 0, 0).head;
  for (int i = 0; i < 300 && refused() == 0; ++i) connection.Say(messages);
  EXPECT_TRUE(connection.HearsTheEnd());
  EXPECT_TRUE(Counts(1));
  EXPECT_TRUE(CallOn(*channel_, "Echo").ok());
  while (held_.size() > 0) held_.Take()->Reply(Bytes());
}

TEST_F(LaneAbuseTest, AConnectionThatEndsWithinAMessageLeavesNothing) {
  StartWithLane();
  {
    RawConnection connection = Connected();
    const OutFrame frame = MakeFrame({.kind = FrameKind::kCall, .method = 0, .call = 1, .argument = kNoTimeout},
                                     Bytes::Of(std::string(1'000'000, 'x')), 0, 0);
    connection.Say(frame.head + frame.bulk.Flatten().substr(0, 500'000));
    ASSERT_TRUE(WaitUntil([&] { return server_->status().received_blocks == 1; }));
  }
  EXPECT_TRUE(WaitUntil([&] { return server_->status().received_blocks == 0; }));
}

TEST_F(LaneAbuseTest, MemoryThatIsNotThereEndsTheConnectionOnly) {
  StartWithLane();
  const LaneOffer offer = AskForOffer();
  RawConnection connection(ConnectUnix(offer.unix_socket()));
  // Allows its memory to be read, and then names an address that it does not have.
  HelloBody hello = Hello(offer);
  MemoryProbe probe;
  probe.fill('p');
  hello.reads_memory = 1;
  hello.probe = probe;
  hello.probe_address = reinterpret_cast<uintptr_t>(probe.data());
  connection.Say({.kind = FrameKind::kHello}, BodyBytes(hello));
  auto welcome = connection.Hear();
  ASSERT_TRUE(welcome.has_value());
  auto body = ParseWelcome(std::move(*welcome));
  ASSERT_TRUE(body.ok()) << body.status();
  if (!body->reads_memory)
    GTEST_SKIP() << "the system does not let one process read another's memory, so that there is nothing to be refused";
  connection.Say({.kind = FrameKind::kReady, .argument = 0});
  Bytes nowhere;
  nowhere.Append({reinterpret_cast<const char*>(0x1000), 1'000'000}, nullptr);
  connection.Say(MakeFrame({.kind = FrameKind::kCall, .call = 1, .argument = kNoTimeout}, nowhere, 1000, 1).head);
  EXPECT_TRUE(connection.HearsTheEnd());
  EXPECT_TRUE(CallOn(*channel_, "Echo").ok());
  EXPECT_TRUE(WaitUntil([&] { return server_->status().received_blocks == 0; }));
}

}  // namespace
}  // namespace millrace::net
