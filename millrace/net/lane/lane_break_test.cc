// Lanes that break or are corrupted while both ends live on.
#include <thread>

#include "absl/strings/match.h"
#include "millrace/base/event_wait.h"
#include "millrace/net/lane/lane_proxy_testing.h"
#include "millrace/net/lane/lane_testing.h"

namespace millrace::net {
namespace {

class LaneBreakTest : public LaneTest {
 protected:
  // Nobody asks for an offer any more when the proxy goes.
  ~LaneBreakTest() override {
    channel_.reset();
    client_.reset();
  }
  // As StartWithLane, with the proxy in between.
  void StartWithProxy(LaneOptions options = {}) {
    Start(options);
    client_ = NewLaneTransport(std::make_unique<SetUpThroughProxy>(NewGrpcTransport(), &proxy_), options);
    channel_ = client_->Connect(address_);
    ASSERT_TRUE(HasLane(*channel_));
    ASSERT_EQ(Outgoing(*client_).kind, "tcp");
    ASSERT_EQ(proxy_.connections(), 1);
  }
  // A call and a stream that the server keeps.
  void HoldCalls() {
    channel_->Call(TestService::FullName("Hold"), {}, {.every_step = true}, call_.Done());
    channel_->streaming()->Stream(
        TestService::FullName("Hold"), {}, {}, [](Bytes) {}, stream_.Done());
    ASSERT_TRUE(WaitUntil([&] { return held_.size() == 2; }));
  }
  void ExpectHeldCallsAreUnavailable(const std::string& why) {
    for (const Answer& answer : {call_, stream_}) {
      ASSERT_TRUE(answer.notification().WaitFor(absl::Seconds(30)));
      EXPECT_EQ(answer.status().code(), absl::StatusCode::kUnavailable);
      EXPECT_TRUE(absl::StrContains(answer.status().message(), address_)) << answer.status();
      EXPECT_TRUE(absl::StrContains(answer.status().message(), why)) << answer.status();
    }
    // The server's end of them is told as well.
    while (held_.size() > 0) {
      const auto held = held_.Take();
      EXPECT_TRUE(WaitUntil([&] { return held->cancellation()->IsCancelled(); }));
      held->Reply(Bytes());
    }
  }
  // Later calls are answered at once, over gRPC first, and then over a lane again.
  void ExpectANewLane() {
    EXPECT_TRUE(CallOn(*channel_, "Echo").ok());
    EXPECT_TRUE(HasLane(*channel_));
    EXPECT_EQ(proxy_.connections(), 2);
    EXPECT_EQ(Outgoing(*client_).kind, "tcp");
    EXPECT_EQ(CallOn(*channel_, "Echo", Bytes::Of("x"))->Flatten(), "x");
    EXPECT_TRUE(
        WaitUntil([&] { return server_->status().received_blocks == 0 && client_->status().received_blocks == 0; }));
  }

  LaneProxy proxy_;
  Answer call_, stream_;
};

TEST_F(LaneBreakTest, CallsOnALaneThatBreaksAreUnavailableAndThereIsANewLane) {
  StartWithProxy();
  HoldCalls();
  proxy_.Cut();
  ExpectHeldCallsAreUnavailable("closed the connection");
  ExpectANewLane();
  EXPECT_EQ(server_->status().refused_connections, 0);
}

TEST_F(LaneBreakTest, ALaneThatGoesSilentEndsAtBothEndsAndThereIsANewLane) {
  StartWithProxy({.heartbeat = absl::Milliseconds(50)});
  HoldCalls();
  proxy_.Silence();
  ExpectHeldCallsAreUnavailable("not even a heartbeat");
  ExpectANewLane();
  EXPECT_EQ(server_->status().refused_connections, 0);
}

TEST_F(LaneBreakTest, AnIdleLaneIsKeptAliveByItsHeartbeat) {
  // Three intervals are longer than the proxy's thread waits for a core beside other programs.
  StartWithProxy({.heartbeat = absl::Milliseconds(200)});
  HoldCalls();
  const uint64_t before = Outgoing(*client_).bytes_received;
  // More than the three intervals of silence that would end it.
  EXPECT_TRUE(WaitUntil([&] { return Outgoing(*client_).bytes_received >= before + 8 * sizeof(FrameHeader); }));
  EXPECT_EQ(proxy_.connections(), 1);
  EXPECT_FALSE(call_.notification().HasBeenNotified());
  while (held_.size() > 0) held_.Take()->Reply(Bytes());
  EXPECT_TRUE(call_.notification().WaitFor(absl::Seconds(30)) && call_.status().ok()) << call_.status();
}

TEST_F(LaneBreakTest, AnAnswerThatIsCorruptedEndsTheLaneAndIsNamed) {
  StartWithProxy();
  HoldCalls();
  proxy_.CorruptNext(/*to_server=*/false);
  EXPECT_EQ(CallOn(*channel_, "Echo").status().code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(absl::StrContains(Outgoing(*client_).why_not_better, "a frame whose checksum is wrong"));
  ExpectHeldCallsAreUnavailable("a frame whose checksum is wrong");
  ExpectANewLane();
}

TEST_F(LaneBreakTest, AThreadThatReadsTheLaneItselfIsToldAsWell) {
  StartWithProxy();
  for (const bool corrupted : {false, true}) {
    ASSERT_TRUE(HasLane(*channel_));
    EventWait wait;
    Status status;
    if (corrupted) proxy_.CorruptNext(/*to_server=*/false);
    channel_->Call(TestService::FullName(corrupted ? "Echo" : "Hold"), {},
                   {.every_step = true, .handover = wait.handover()}, [&](const StatusOr<Bytes>& answer) {
                     status = answer.status();
                     wait.Notify();
                   });
    std::thread other([&] {
      if (corrupted) return;
      ASSERT_TRUE(WaitUntil([&] { return held_.size() == 1; }));
      proxy_.Cut();
    });
    wait.Wait();
    other.join();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  }
  EXPECT_TRUE(HasLane(*channel_));
  EXPECT_TRUE(CallOn(*channel_, "Echo").ok());
  held_.Take()->Reply(Bytes());
}

TEST_F(LaneBreakTest, ACallThatIsCorruptedEndsTheLaneAndIsCounted) {
  StartWithProxy();
  HoldCalls();
  proxy_.CorruptNext(/*to_server=*/true);
  EXPECT_EQ(CallOn(*channel_, "Echo").status().code(), absl::StatusCode::kUnavailable);
  ExpectHeldCallsAreUnavailable("closed the connection");
  EXPECT_TRUE(WaitUntil([&] { return server_->status().refused_connections == 1; }));
  ExpectANewLane();
}

TEST_F(LaneBreakTest, ALaneThatBreaksWithinALargeMessageLeavesNothing) {
  StartWithProxy();
  for (int round = 0; round < 5; ++round) {
    ASSERT_TRUE(HasLane(*channel_));
    std::vector<Answer> answers(10);
    for (Answer& answer : answers) {
      channel_->Call(TestService::FullName("Echo"), Bytes::Of(std::string(10'000'000, 'x')), {.every_step = true},
                     answer.Done());
    }
    proxy_.Cut();
    for (const Answer& answer : answers) {
      ASSERT_TRUE(answer.notification().WaitFor(absl::Seconds(30)));
      if (answer.result().ok()) {
        EXPECT_EQ(answer.result()->size(), 10'000'000);
      } else {
        EXPECT_EQ(answer.status().code(), absl::StatusCode::kUnavailable) << answer.status();
      }
    }
    answers.clear();
    EXPECT_TRUE(
        WaitUntil([&] { return server_->status().received_blocks == 0 && client_->status().received_blocks == 0; }));
  }
}

}  // namespace
}  // namespace millrace::net
