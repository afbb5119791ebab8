// Lanes between processes, one of which is killed.
#include <atomic>
#include <fstream>

#include "absl/strings/match.h"
#include "millrace/base/child_process_testing.h"
#include "millrace/net/lane/lane_testing.h"

namespace millrace::net {
namespace {

constexpr size_t kLarge = 30'000'000;
constexpr size_t kMessages = 30;

std::string ChildPattern() {
  std::string text(kLarge, 'x');
  for (size_t i = 0; i < kLarge; i += 997) text[i] = static_cast<char>(i * 31);
  return text;
}

// A server at the given port; "Get" answers with a large piece, "GetAndDie" and "StreamAndDie" are killed right behind
// it.
TEST(LaneChild, Serve) {
  const char* const argument = ChildProcess::Argument();
  if (argument == nullptr) GTEST_SKIP() << "for other tests";
  HeldCalls held;
  TestService service;
  const std::string text = ChildPattern();
  service.On("Echo", Echo).On("Hold", held.Handler());
  service.On("GetAndDie", [&](std::shared_ptr<IncomingCall> call) {
    call->Reply(Bytes::Of(text));
    kill(getpid(), SIGKILL);
  });
  service.On("StreamAndDie", [&](std::shared_ptr<IncomingCall> call) {
    for (int i = 0; i < 5; ++i) call->stream()->Send(Bytes::Of(text));
    kill(getpid(), SIGKILL);
  });
  service.On("Take", [taken = std::make_shared<size_t>(0)](std::shared_ptr<IncomingCall> call) {
    call->stream()->OnMessage([taken, call](Bytes message) {
      *taken += message.size();
      if (*taken == kMessages * kLarge) call->Reply(Bytes());
    });
  });
  auto transport = NewLane();
  auto listener = transport->Listen(absl::StrCat("localhost:", argument), &service);
  ASSERT_TRUE(listener.ok()) << listener.status();
  ChildProcess::SayPort((*listener)->port());
  Notification().Wait();
}

// A client that sends large requests to the given port until it is killed, which it does itself behind one of them.
TEST(LaneChild, Send) {
  const char* const argument = ChildProcess::Argument();
  if (argument == nullptr) GTEST_SKIP() << "for other tests";
  auto transport = NewLane();
  auto channel = transport->Connect(absl::StrCat("localhost:", argument));
  ASSERT_TRUE(HasLane(*channel));
  const std::string text = ChildPattern();
  for (int i = 0; i < 3; ++i)
    channel->Call(TestService::FullName("Check"), Bytes::Of(text), {.every_step = true}, [](auto) {});
  kill(getpid(), SIGKILL);
}

class LaneProcessTest : public ::testing::Test {
 protected:
  std::unique_ptr<Transport> client_ = NewLane();
};

TEST_F(LaneProcessTest, AKilledPeerFailsTheCallsInFlightAndTheNextOneIsReachedByGrpcAndThenByALane) {
  auto child = std::make_unique<ChildProcess>("LaneChild.Serve", "0");
  const int port = child->Port();
  auto channel = client_->Connect(absl::StrCat("localhost:", port));
  for (int round = 0; round < 2; ++round) {
    ASSERT_TRUE(HasLane(*channel));
    EXPECT_EQ(Outgoing(*client_).kind, "shm");
    Answer held;
    channel->Call(TestService::FullName("Hold"), {}, {.every_step = true}, held.Done());
    Answer stream;
    channel->streaming()->Stream(
        TestService::FullName("Hold"), {}, {}, [](Bytes) {}, stream.Done());
    EXPECT_TRUE(CallOn(*channel, "Echo").ok());
    child->Kill();
    for (const Answer& answer : {held, stream}) {
      ASSERT_TRUE(answer.notification().WaitFor(absl::Seconds(30)));
      EXPECT_EQ(answer.status().code(), absl::StatusCode::kUnavailable);
      EXPECT_TRUE(absl::StrContains(answer.status().message(), channel->address())) << answer.status();
    }
    EXPECT_EQ(channel->streaming(), nullptr);
    EXPECT_EQ(CallOn(*channel, "Echo").status().code(), absl::StatusCode::kUnavailable);
    EXPECT_EQ(Outgoing(*client_).kind, "grpc");
    child = std::make_unique<ChildProcess>("LaneChild.Serve", absl::StrCat(port));
    ASSERT_EQ(child->Port(), port);
    EXPECT_TRUE(CallOn(*channel, "Echo").ok());
  }
  EXPECT_TRUE(HasLane(*channel));
}

TEST_F(LaneProcessTest, WhatAKilledPeerAnnouncedIsWholeOrAnError) {
  const std::string expected = ChildPattern();
  for (int round = 0; round < 4; ++round) {
    ChildProcess child("LaneChild.Serve", "0");
    auto channel = client_->Connect(absl::StrCat("localhost:", child.Port()));
    ASSERT_TRUE(HasLane(*channel));
    std::atomic<int> wrong{0};
    Answer answer;
    if (round % 2 == 0) {
      channel->Call(TestService::FullName("GetAndDie"), {}, {.every_step = true}, answer.Done());
    } else {
      channel->streaming()->Stream(
          TestService::FullName("StreamAndDie"), {}, {}, [&](Bytes message) { wrong += message.Flatten() != expected; },
          answer.Done());
    }
    ASSERT_TRUE(answer.notification().WaitFor(absl::Seconds(30)));
    if (answer.result().ok()) {
      EXPECT_TRUE(answer.result()->Flatten() == expected);
    } else {
      EXPECT_EQ(answer.status().code(), absl::StatusCode::kUnavailable) << answer.status();
      EXPECT_TRUE(absl::StrContains(answer.status().message(), channel->address())) << answer.status();
    }
    EXPECT_EQ(wrong, 0);
  }
}

TEST_F(LaneProcessTest, AServerOutlivesClientsThatAreKilledBehindLargeRequests) {
  const std::string expected = ChildPattern();
  std::atomic<int> wrong{0};
  TestService service;
  service.On("Echo", Echo).On("Check", [&](std::shared_ptr<IncomingCall> call) {
    wrong += call->request().Flatten() != expected;
    call->Reply(Bytes());
  });
  auto server = NewLane();
  auto listener = server->Listen("localhost:0", &service);
  ASSERT_TRUE(listener.ok()) << listener.status();
  for (int round = 0; round < 3; ++round) {
    ChildProcess child("LaneChild.Send", absl::StrCat((*listener)->port()));
    child.Wait();
  }
  EXPECT_TRUE(WaitUntil([&] { return server->status().peers.empty() && server->status().received_blocks == 0; }));
  EXPECT_EQ(wrong, 0);
  auto channel = client_->Connect(absl::StrCat("localhost:", (*listener)->port()));
  EXPECT_TRUE(HasLane(*channel));
  EXPECT_TRUE(CallOn(*channel, "Echo").ok());
}

size_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  size_t total = 0, resident = 0;
  file >> total >> resident;
  return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

TEST_F(LaneProcessTest, AStoppedReaderHoldsUpNobodyElseAndCostsItsSenderNoMemory) {
  for (const LaneKind kind : {LaneKind::kShm, LaneKind::kTcp}) {
    const LaneOptions options{.kind = kind};
    client_ = NewLane(options);
    ChildProcess slow("LaneChild.Serve", "0"), other("LaneChild.Serve", "0");
    auto to_slow = client_->Connect(absl::StrCat("localhost:", slow.Port()));
    auto to_other = client_->Connect(absl::StrCat("localhost:", other.Port()));
    ASSERT_TRUE(HasLane(*to_slow) && HasLane(*to_other));
    const auto sent_to_slow = [&] {
      uint64_t sent = 0;
      for (const PeerStatus& peer : client_->status().peers) {
        if (peer.peer == to_slow->address()) sent += peer.bytes_sent;
      }
      return sent;
    };
    Answer answer;
    auto call = to_slow->streaming()->Stream(
        TestService::FullName("Take"), {}, {}, [](Bytes) {}, answer.Done());
    slow.Stop();
    // As a variable that is read again and again: one buffer, many messages.
    const Bytes message = Bytes::Of(ChildPattern());
    const uint64_t sent_before = sent_to_slow();
    const size_t resident = ResidentBytes();
    for (size_t i = 0; i < kMessages; ++i) call->Send(message);
    for (int i = 0; i < 100; ++i) EXPECT_TRUE(CallOn(*to_other, "Echo", Bytes::Of(std::string(100'000, 'x'))).ok());
    EXPECT_FALSE(answer.here());
    EXPECT_LT(ResidentBytes(), resident + kLarge);
    EXPECT_LE(sent_to_slow() - sent_before, options.window + options.reserve);
    EXPECT_GT(sent_to_slow() - sent_before, options.window / 2);
    slow.Continue();
    ASSERT_TRUE(answer.notification().WaitFor(absl::Seconds(60)));
    EXPECT_TRUE(answer.result().ok()) << answer.status();
    EXPECT_GE(sent_to_slow() - sent_before, kMessages * kLarge);
  }
}

}  // namespace
}  // namespace millrace::net
