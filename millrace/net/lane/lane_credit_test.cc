// Flow control: messages that wait for credit, and calls that are cancelled meanwhile.
#include <atomic>

#include "millrace/net/lane/lane_testing.h"

namespace millrace::net {
namespace {

TEST_F(LaneTest, ASlowReaderHoldsItsSenderBackAndNobodyElse) {
  Notification go_on;
  std::atomic<int> taken{0};
  service_.On("Slow", [&](std::shared_ptr<IncomingCall> call) {
    call->stream()->OnMessage([&, call](Bytes message) {
      go_on.Wait();
      EXPECT_EQ(message.size(), 100'000);
      if (++taken == 100) call->Reply(Bytes());
    });
  });
  StartWithLane({.window = 1'000'000, .threads = 4}, {.kind = LaneKind::kTcp});
  Answer answer;
  auto call = channel_->streaming()->Stream(
      TestService::FullName("Slow"), {}, {}, [](Bytes) {}, answer.Done());
  for (int i = 0; i < 100; ++i) call->Send(Bytes::Of(Pattern(100'000)));
  // Ten million bytes wait at the sender, and small calls pass them.
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(CallOn(*channel_, "Echo", Bytes::Of("x")).ok());
  uint64_t received = 0;
  for (const PeerStatus& peer : server_->status().peers) received += peer.bytes_received;
  EXPECT_LT(received, 1'500'000);
  EXPECT_EQ(taken, 0);
  // A large call waits too, and may be given up.
  Answer large;
  auto waiting =
      channel_->Call(TestService::FullName("Echo"), Bytes::Of(Pattern(500'000)), {.every_step = true}, large.Done());
  waiting->Cancel();
  large.notification().Wait();
  EXPECT_EQ(large.status().code(), absl::StatusCode::kCancelled);
  go_on.Notify();
  answer.notification().Wait();
  EXPECT_TRUE(answer.result().ok()) << answer.status();
  EXPECT_EQ(taken, 100);
  // And one that is larger than all that may be under way.
  auto echo = CallOn(*channel_, "Echo", Bytes::Of(Pattern(5'000'000)));
  ASSERT_TRUE(echo.ok()) << echo.status();
  EXPECT_TRUE(echo->Flatten() == Pattern(5'000'000));
}

TEST_F(LaneTest, ACallThatIsGivenUpMakesRoomForThoseBehindIt) {
  StartWithLane({.window = 1'000'000}, {.kind = LaneKind::kTcp});
  Answer stream;
  auto call = channel_->streaming()->Stream(
      TestService::FullName("Hold"), {}, {}, [](Bytes) {}, stream.Done());
  ASSERT_TRUE(WaitUntil([&] { return held_.size() == 1; }));
  // Nobody takes this one: its bytes stay under way.
  call->Send(Bytes::Of(Pattern(700'000)));
  Answer large, small;
  auto waiting =
      channel_->Call(TestService::FullName("Echo"), Bytes::Of(Pattern(500'000)), {.every_step = true}, large.Done());
  channel_->Call(TestService::FullName("Echo"), Bytes::Of(Pattern(200'000)), {.every_step = true}, small.Done());
  EXPECT_FALSE(large.here());
  EXPECT_FALSE(small.here());
  waiting->Cancel();
  EXPECT_TRUE(WaitUntil([&] { return small.here(); }));
  EXPECT_TRUE(small.result().ok()) << small.status();
  held_.Take()->Reply(Bytes());
}

TEST_F(LaneTest, ATimeoutThatIsOverBeforeTheCallHasGoneEndsThatCallOnly) {
  StartWithLane();
  Answer held;
  channel_->Call(TestService::FullName("Hold"), {}, {.every_step = true}, held.Done());
  ASSERT_TRUE(WaitUntil([&] { return held_.size() == 1; }));
  // Runs of small pieces between larger ones, which take their time to be made into a frame.
  const Bytes small = Bytes::Of(Pattern(4'000)), larger = Bytes::Of(Pattern(5'000));
  Bytes request;
  for (int run = 0; run < 250; ++run) {
    for (int i = 0; i < 15; ++i) request.Append(small);
    request.Append(larger);
  }
  for (int i = 0; i < 20; ++i) {
    Answer answer;
    channel_->Call(TestService::FullName("Echo"), request, {.timeout = absl::Milliseconds(1), .every_step = true},
                   answer.Done());
    answer.notification().Wait();
    EXPECT_TRUE(answer.status().ok() || absl::IsDeadlineExceeded(answer.status())) << answer.status();
  }
  held_.Take()->Reply(Bytes::Of("x"));
  held.notification().Wait();
  EXPECT_TRUE(held.result().ok()) << held.status();
}

}  // namespace
}  // namespace millrace::net
