#include <gtest/gtest.h>

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "millrace/net/sim/sim_network.h"
#include "millrace/net/transport_testing.h"

namespace millrace::net {
namespace {

class SimTest : public ::testing::Test {
 protected:
  SimTest() {
    service_.On("Echo", [this](std::shared_ptr<IncomingCall> call) {
      ++served_;
      Echo(std::move(call));
    });
    service_.On("Hold", held_.Handler());
    listener_ = server_->Listen("ps0:2222", &service_).value();
  }
  Answer Start(const std::string& method, absl::Duration timeout = absl::InfiniteDuration()) {
    Answer answer;
    call_ = client_->Connect("ps0:2222")
                ->Call(TestService::FullName(method), Bytes::Of("x"), {.timeout = timeout}, answer.Done());
    return answer;
  }
  Status CallStatus(const std::string& method, absl::Duration timeout = absl::InfiniteDuration()) {
    Answer answer = Start(method, timeout);
    EXPECT_TRUE(network_.RunUntil([&] { return answer.here(); }));
    return answer.status();
  }
  absl::Duration Elapsed() { return network_.clock()->Now() - absl::UnixEpoch(); }

  SimNetwork network_{7};
  TestService service_;
  HeldCalls held_;
  int served_ = 0;
  std::unique_ptr<Transport> server_ = network_.NewTransport("server");
  std::unique_ptr<Transport> client_ = network_.NewTransport("client");
  std::unique_ptr<Listener> listener_;
  RefPtr<OutgoingCall> call_;
};

TEST_F(SimTest, TimePassesOnlyWithEvents) {
  EXPECT_TRUE(CallStatus("Echo").ok());
  EXPECT_GT(Elapsed(), absl::ZeroDuration());
  EXPECT_LE(Elapsed(), absl::Milliseconds(2));
  network_.RunFor(absl::Hours(1));
  EXPECT_GE(Elapsed(), absl::Hours(1));
}

TEST_F(SimTest, TimersRunInTheOrderOfTheirTimesAndCanBeCancelled) {
  std::string order;
  TimerQueue* const timers = network_.timers();
  timers->Schedule(absl::Seconds(3), [&] { order += "c"; });
  timers->Schedule(absl::Seconds(1), [&] { order += "a"; });
  const auto cancelled = timers->Schedule(absl::Seconds(2), [&] { order += "b"; });
  EXPECT_TRUE(timers->Cancel(cancelled));
  EXPECT_FALSE(timers->Cancel(cancelled));
  EXPECT_TRUE(network_.RunUntil([&] { return order.size() == 2; }));
  EXPECT_EQ(order, "ac");
  EXPECT_EQ(Elapsed(), absl::Seconds(3));
}

TEST_F(SimTest, ALostRequestIsSilenceUntilTheTimeout) {
  network_.OnMessage([](const SimMessage&) { return SimFate::kLose; });
  EXPECT_EQ(CallStatus("Echo", absl::Seconds(5)).code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(Elapsed(), absl::Seconds(5));
  EXPECT_EQ(served_, 0);
}

TEST_F(SimTest, ALostMessageBreaksItsConnectionAfterAWhile) {
  for (auto lost : {SimMessage::Kind::kRequest, SimMessage::Kind::kAnswer}) {
    network_.OnMessage(
        [&](const SimMessage& message) { return message.kind == lost ? SimFate::kLose : SimFate::kByChance; });
    const absl::Duration before = Elapsed();
    EXPECT_EQ(CallStatus("Echo").code(), absl::StatusCode::kUnavailable);
    EXPECT_GE(Elapsed() - before, absl::Seconds(15));
    EXPECT_LE(Elapsed() - before, absl::Seconds(16));
  }
  EXPECT_EQ(served_, 1);
}

TEST_F(SimTest, ADuplicatedRequestIsServedTwiceAndAnsweredOnce) {
  network_.OnMessage([](const SimMessage& message) { return SimFate::kDuplicate; });
  Answer answer = Start("Echo");
  network_.RunFor(absl::Seconds(1));
  EXPECT_EQ(served_, 2);
  EXPECT_EQ(answer.count(), 1);
  EXPECT_TRUE(answer.status().ok());
}

TEST_F(SimTest, ASecondCopyHearsThatTheCallerHasItsAnswer) {
  network_.OnMessage([](const SimMessage& message) {
    return message.kind == SimMessage::Kind::kRequest ? SimFate::kDuplicate : SimFate::kDeliver;
  });
  Answer answer = Start("Hold");
  ASSERT_TRUE(network_.RunUntil([&] { return held_.size() == 2; }));
  held_.Take()->Reply(Bytes());
  auto second = held_.Take();
  ASSERT_TRUE(network_.RunUntil([&] { return second->cancellation()->IsCancelled(); }, absl::Seconds(1)));
  EXPECT_TRUE(answer.status().ok());
  second->Reply(Bytes());
}

TEST_F(SimTest, AServerHearsOfACancellationThatOvertookItsRequest) {
  for (int i = 0; i < 20; ++i) {
    Answer answer = Start("Hold");
    call_->Cancel();
    ASSERT_TRUE(network_.RunUntil([&] { return held_.size() == 1; }));
    auto call = held_.Take();
    ASSERT_TRUE(network_.RunUntil([&] { return call->cancellation()->IsCancelled(); }, absl::Seconds(1)));
    call->Reply(Bytes());
  }
}

TEST_F(SimTest, MessagesOvertakeEachOther) {
  std::vector<int> order;
  service_.On("Number", [&](std::shared_ptr<IncomingCall> call) {
    order.push_back(std::stoi(call->request().Flatten()));
    call->Reply(Bytes());
  });
  for (int i = 0; i < 20; ++i) {
    client_->Connect("ps0:2222")->Call(TestService::FullName("Number"), Bytes::Of(std::to_string(i)), {}, [](auto) {});
  }
  network_.RunFor(absl::Seconds(1));
  EXPECT_EQ(order.size(), 20);
  EXPECT_FALSE(std::is_sorted(order.begin(), order.end()));
}

TEST_F(SimTest, TheDeathOfAServerResetsItsCallsAndRefusesMore) {
  Answer answer = Start("Hold");
  ASSERT_TRUE(network_.RunUntil([&] { return held_.size() == 1; }));
  network_.Kill("server");
  ASSERT_TRUE(network_.RunUntil([&] { return answer.here(); }));
  EXPECT_EQ(answer.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(absl::StrContains(answer.status().message(), "ps0:2222"));
  EXPECT_LE(Elapsed(), absl::Milliseconds(5));
  auto call = held_.Take();
  ASSERT_TRUE(network_.RunUntil([&] { return call->cancellation()->IsCancelled(); }));
  call->Reply(Bytes());
  EXPECT_EQ(CallStatus("Echo").code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(server_->Listen("ps0:2222", &service_).ok());
}

TEST_F(SimTest, ARestartedServerIsReached) {
  network_.Kill("server");
  EXPECT_EQ(CallStatus("Echo").code(), absl::StatusCode::kUnavailable);
  network_.Restart("server");
  EXPECT_EQ(CallStatus("Echo").code(), absl::StatusCode::kUnavailable);
  listener_ = server_->Listen("ps0:2222", &service_).value();
  EXPECT_TRUE(CallStatus("Echo").ok());
}

TEST_F(SimTest, TheDeathOfAClientCancelsWhatIsServedForIt) {
  Answer answer = Start("Hold");
  ASSERT_TRUE(network_.RunUntil([&] { return held_.size() == 1; }));
  auto call = held_.Take();
  network_.Kill("client");
  ASSERT_TRUE(network_.RunUntil([&] { return call->cancellation()->IsCancelled() && answer.here(); }));
  EXPECT_EQ(answer.status().code(), absl::StatusCode::kUnavailable);
  call->Reply(Bytes());
}

TEST_F(SimTest, AHostThatHangsDoesNothingUntilItIsResumed) {
  network_.Hang("server");
  bool timer = false;
  bool closure = false;
  network_.timers("server")->Schedule(absl::Seconds(1), [&] { timer = true; });
  network_.scheduler("server")->Schedule([&] { closure = true; });
  Answer patient = Start("Echo");
  EXPECT_EQ(CallStatus("Echo", absl::Seconds(5)).code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_FALSE(patient.here() || timer || closure);
  network_.Resume("server");
  EXPECT_TRUE(network_.RunUntil([&] { return patient.here() && timer && closure; }));
  EXPECT_TRUE(patient.status().ok());
}

TEST_F(SimTest, HostsThatAreCutOffHearNothingOfEachOther) {
  network_.Cut("server", "client");
  EXPECT_EQ(CallStatus("Echo", absl::Seconds(5)).code(), absl::StatusCode::kDeadlineExceeded);
  auto other = network_.NewTransport("other");
  Answer answer;
  other->Connect("ps0:2222")->Call(TestService::FullName("Echo"), {}, {}, answer.Done());
  EXPECT_TRUE(network_.RunUntil([&] { return answer.here(); }));
  EXPECT_TRUE(answer.status().ok());
  network_.Heal("client", "server");
  EXPECT_TRUE(CallStatus("Echo").ok());
}

// A call that streams, with what each side got.
class SimStreamTest : public SimTest {
 protected:
  SimStreamTest() {
    network_.SetStreams(true);
    answer_ = {};
    channel_ = client_->Connect("ps0:2222");
    stream_ = channel_->streaming()->Stream(
        TestService::FullName("Hold"), Bytes::Of("x"), {},
        [this](const Bytes& message) { at_client_ += message.Flatten(); }, answer_.Done());
    EXPECT_TRUE(network_.RunUntil([&] { return held_.size() == 1; }));
    served_call_ = held_.Take();
    served_call_->stream()->OnMessage([this](const Bytes& message) { at_server_ += message.Flatten(); });
  }
  void SendBoth(const std::string& letters) {
    for (const char letter : letters) {
      stream_->Send(Bytes::Of(std::string(1, letter)));
      served_call_->stream()->Send(Bytes::Of(std::string(1, letter)));
    }
  }

  std::shared_ptr<Channel> channel_;
  RefPtr<OutgoingStream> stream_;
  Answer answer_;
  std::string at_client_, at_server_;
  std::shared_ptr<IncomingCall> served_call_;
};

TEST_F(SimStreamTest, MessagesAreLateAndDoubledWithoutLosingTheirOrder) {
  network_.SetOptions({.delayed = 0.5, .duplicated = 0.5});
  SendBoth("abcdefghij");
  network_.RunFor(absl::Seconds(5));
  EXPECT_EQ(at_server_, "abcdefghij");
  EXPECT_EQ(at_client_, "abcdefghij");
  served_call_->Reply(Bytes());
  EXPECT_TRUE(network_.RunUntil([&] { return answer_.here(); }));
  EXPECT_TRUE(answer_.status().ok());
}

TEST_F(SimStreamTest, AHostThatHangedGetsThemInOrder) {
  network_.Hang("server");
  for (const char* letter : {"a", "b", "c", "d", "e", "f"}) {
    stream_->Send(Bytes::Of(letter));
    network_.RunFor(absl::Milliseconds(20));
  }
  EXPECT_EQ(at_server_, "");
  network_.Resume("server");
  network_.RunFor(absl::Seconds(1));
  EXPECT_EQ(at_server_, "abcdef");
  served_call_->Reply(Bytes());
}

TEST_F(SimStreamTest, BehindALostMessageNothingArrivesAndTheCallBreaksOnBothSides) {
  network_.OnMessage([lost = false](const SimMessage& message) mutable {
    if (message.kind != SimMessage::Kind::kMessage || message.from != "client" || lost) return SimFate::kDeliver;
    lost = true;
    return SimFate::kLose;
  });
  SendBoth("abc");
  network_.RunFor(absl::Seconds(14));
  EXPECT_EQ(at_server_, "");
  EXPECT_EQ(at_client_, "abc");
  EXPECT_FALSE(answer_.here());
  network_.RunFor(absl::Seconds(2));
  ASSERT_TRUE(answer_.here());
  EXPECT_EQ(answer_.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(served_call_->cancellation()->IsCancelled());
  served_call_->Reply(Bytes());
}

// A few hosts that call each other under all faults; gives the log.
std::string Storm(uint64_t seed) {
  SimNetwork network(seed, {.delayed = 0.1, .lost = 0.05, .reset_after = absl::Seconds(2), .duplicated = 0.05});
  int open = 0;
  std::vector<std::unique_ptr<Transport>> transports;
  std::vector<std::unique_ptr<TestService>> services;
  std::vector<std::unique_ptr<Listener>> listeners;
  const auto address = [](int i) { return absl::StrCat("task", i, ":1"); };
  for (int i = 0; i < 3; ++i) {
    transports.push_back(network.NewTransport(absl::StrCat("host", i)));
    services.push_back(std::make_unique<TestService>());
    services.back()->On("Echo", Echo).On("Forward", [&, i](std::shared_ptr<IncomingCall> call) {
      ++open;
      transports[i]
          ->Connect(address((i + 1) % 3))
          ->Call(TestService::FullName("Echo"), std::move(call->request()), {.timeout = absl::Seconds(1)},
                 [&open, call](auto answer) {
                   --open;
                   call->Reply(std::move(answer));
                 });
    });
    listeners.push_back(transports[i]->Listen(address(i), services[i].get()).value());
  }
  for (int i = 0; i < 60; ++i) {
    network.timers()->Schedule(absl::Milliseconds(50 * i), [&, i] {
      if (i == 20) network.Hang("host1");
      if (i == 30) network.Resume("host1");
      if (i == 35) network.Cut("host0", "host2");
      if (i == 40) network.Heal("host0", "host2");
      if (i == 45) network.Kill("host2");
      ++open;
      transports[i % 3]
          ->Connect(address((i + i / 3) % 3))
          ->Call(TestService::FullName("Forward"), Bytes::Of("x"), {}, [&](auto) { --open; });
    });
  }
  network.RunFor(absl::Seconds(4));
  EXPECT_TRUE(network.RunUntil([&] { return open == 0; })) << "seed " << seed << ": " << open << " calls never end";
  const std::string log = absl::StrJoin(network.log(), "\n");
  listeners.clear();
  transports.clear();
  return log;
}

TEST(SimSeeds, TheSameSeedGivesTheSameLog) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const std::string log = Storm(seed);
    EXPECT_EQ(log, Storm(seed));
    EXPECT_NE(log, Storm(seed + 1000));
  }
}

TEST(SimSeeds, EveryCallEndsWhateverHappens) {
  for (uint64_t seed = 0; seed < 500; ++seed) Storm(seed);
}

}  // namespace
}  // namespace millrace::net
