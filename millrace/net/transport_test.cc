// The contract that every transport fulfils.
#include "millrace/net/transport.h"

#include <atomic>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "millrace/base/thread_group.h"
#include "millrace/net/every_transport_testing.h"

namespace millrace::net {
namespace {

class TransportTest : public EveryTransport {};
INSTANTIATE_TEST_SUITE_P(All, TransportTest, ::testing::ValuesIn(AllKinds()), NameOfKind);

class TransportThreadsTest : public EveryTransport {};
INSTANTIATE_TEST_SUITE_P(All, TransportThreadsTest,
                         ::testing::ValuesIn(KindsWhere([](const Kind& kind) { return kind.threads; })), NameOfKind);

TEST_P(TransportTest, CallsAreAnswered) {
  service_.On("Echo", Echo).On("Reverse", [](std::shared_ptr<IncomingCall> call) {
    std::string text = call->request().Flatten();
    call->Reply(Bytes::Of(std::string(text.rbegin(), text.rend())));
  });
  auto listener = Listen();
  auto echo = Start("Echo", Bytes::Of("hello"));
  ASSERT_TRUE(Wait(echo).ok()) << echo.status();
  EXPECT_EQ(echo.result()->Flatten(), "hello");
  auto empty = Start("Echo");
  ASSERT_TRUE(Wait(empty).ok()) << empty.status();
  EXPECT_TRUE(empty.result()->empty());
  EXPECT_EQ(Wait(Start("Reverse", Bytes::Of("abc")))->Flatten(), "cba");
}

TEST_P(TransportTest, MessagesOfManyPiecesArriveWhole) {
  service_.On("Echo", Echo);
  auto listener = Listen();
  Bytes request;
  std::string expected;
  for (int size : {1, 5000, 3, 17, 200000, 4096, 4095, 1}) {
    std::string text(size, static_cast<char>('a' + size % 26));
    expected += text;
    request.Append(Bytes::Of(std::move(text)));
  }
  auto answer = Start("Echo", request);
  ASSERT_TRUE(Wait(answer).ok()) << answer.status();
  EXPECT_TRUE(answer.result()->Flatten() == expected);
}

TEST_P(TransportTest, LargeMessagesArriveWhole) {
  service_.On("Echo", Echo);
  auto listener = Listen();
  std::string text(100'000'000, 'x');
  for (size_t i = 0; i < text.size(); i += 997) text[i] = static_cast<char>(i);
  const std::string expected = text;
  auto answer = Start("Echo", Bytes::Of(std::move(text)));
  ASSERT_TRUE(Wait(answer).ok()) << answer.status();
  EXPECT_TRUE(answer.result()->Flatten() == expected);
}

TEST_P(TransportTest, ErrorsArriveWithTheirCodeAndMessage) {
  service_.On("Fail", [](std::shared_ptr<IncomingCall> call) {
    const int code = std::stoi(call->request().Flatten());
    call->Reply(
        Status(static_cast<absl::StatusCode>(code), absl::StrCat("{{node a}} said \"%\" \xc3\xa4\nnumber ", code)));
  });
  auto listener = Listen();
  for (int code = 1; code <= 16; ++code) {
    const Status status = CallStatus("Fail", Bytes::Of(std::to_string(code)));
    EXPECT_EQ(static_cast<int>(status.code()), code);
    EXPECT_EQ(status.message(), absl::StrCat("{{node a}} said \"%\" \xc3\xa4\nnumber ", code));
  }
}

TEST_P(TransportTest, ALongErrorKeepsItsCode) {
  service_.On("Fail", [](std::shared_ptr<IncomingCall> call) {
    call->Reply(InvalidArgument("start ", std::string(1'000'000, '%')));
  });
  auto listener = Listen();
  const Status status = CallStatus("Fail");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::StartsWith(status.message(), "start %%%%"));
}

TEST_P(TransportTest, AMethodThatIsNotServedIsUnimplemented) {
  service_.On("Echo", Echo);
  auto listener = Listen();
  EXPECT_EQ(CallStatus("Other").code(), absl::StatusCode::kUnimplemented);
}

TEST_P(TransportTest, ARefusedAddressIsUnavailableAndNamed) {
  service_.On("Echo", Echo);
  auto listener = Listen();
  listener->Stop();
  const Status status = CallStatus("Echo");
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(absl::StrContains(status.message(), address_)) << status;
}

TEST_P(TransportTest, AServerThatComesBackIsReachedByTheNextCall) {
  service_.On("Echo", Echo);
  auto listener = Listen();
  EXPECT_TRUE(CallStatus("Echo").ok());
  for (int round = 0; round < 3; ++round) {
    listener.reset();
    EXPECT_EQ(CallStatus("Echo").code(), absl::StatusCode::kUnavailable);
    EXPECT_EQ(CallStatus("Echo").code(), absl::StatusCode::kUnavailable);
    auto again = server_->Listen(address_, &service_);
    ASSERT_TRUE(again.ok()) << again.status();
    listener = std::move(again).value();
    EXPECT_TRUE(CallStatus("Echo").ok());
  }
}

TEST_P(TransportTest, CancellingACallEndsItAndReachesTheServer) {
  HeldCalls held;
  service_.On("Hold", held.Handler());
  auto listener = Listen();
  auto answer = Start("Hold");
  ASSERT_TRUE(WaitUntil([&] { return held.size() == 1; }));
  auto call = held.Take();
  EXPECT_FALSE(call->cancellation()->IsCancelled());
  call_->Cancel();
  EXPECT_EQ(Wait(answer).status().code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(WaitUntil([&] { return call->cancellation()->IsCancelled(); }));
  call->Reply(Bytes::Of("too late"));
  call_->Cancel();
  EXPECT_EQ(answer.count(), 1);
}

TEST_P(TransportTest, ACallEndsWithItsTimeout) {
  HeldCalls held;
  service_.On("Hold", held.Handler());
  auto listener = Listen();
  auto answer = Start("Hold", {}, {.timeout = absl::Milliseconds(200)});
  ASSERT_TRUE(WaitUntil([&] { return held.size() == 1; }));
  auto call = held.Take();
  EXPECT_LT(call->deadline(), absl::InfiniteFuture());
  const Status status = Wait(answer).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(absl::StrContains(status.message(), address_)) << status;
  EXPECT_TRUE(WaitUntil([&] { return call->cancellation()->IsCancelled(); }));
  call->Reply(Bytes());
}

TEST_P(TransportTest, ACallWithoutATimeoutHasNoDeadline) {
  absl::Time deadline;
  service_.On("Look", [&](std::shared_ptr<IncomingCall> call) {
    deadline = call->deadline();
    EXPECT_FALSE(call->peer().empty());
    call->Reply(Bytes());
  });
  auto listener = Listen();
  EXPECT_TRUE(CallStatus("Look").ok());
  EXPECT_EQ(deadline, absl::InfiniteFuture());
}

TEST_P(TransportTest, ACallThatTheServiceDropsIsAnError) {
  service_.On("Drop", [](std::shared_ptr<IncomingCall> call) {});
  auto listener = Listen();
  EXPECT_EQ(CallStatus("Drop").code(), absl::StatusCode::kInternal);
}

TEST_P(TransportTest, StopCancelsOpenCallsAndTheirAnswersArrive) {
  HeldCalls held;
  service_.On("Hold", held.Handler());
  auto listener = Listen();
  std::vector<Answer> answers;
  for (int i = 0; i < 10; ++i) answers.push_back(Start("Hold"));
  ASSERT_TRUE(WaitUntil([&] { return held.size() == 10; }));
  for (int i = 0; i < 10; ++i) {
    auto call = held.Take();
    CancellationManager* const cancellation = call->cancellation();
    ASSERT_TRUE(cancellation->Register(cancellation->NewToken(), [call] { call->Reply(Aborted("stopped")); }));
  }
  listener->Stop();
  for (Answer& answer : answers) EXPECT_EQ(Wait(answer).status(), Aborted("stopped"));
  listener->Stop();
}

TEST_P(TransportTest, ATakenPortIsAnErrorThatNamesIt) {
  service_.On("Echo", Echo);
  auto listener = Listen();
  TestService other;
  other.On("Echo", Echo);
  const auto second = server_->Listen(address_, &other);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_TRUE(absl::StrContains(second.status().message(), address_)) << second.status();
  EXPECT_TRUE(CallStatus("Echo").ok());
  listener->Stop();
  EXPECT_TRUE(server_->Listen(address_, &other).ok());
}

TEST_P(TransportTest, WhatIsNoAddressIsRefused) {
  for (const char* address : {"", "localhost", ":1", "localhost:x", "localhost:70000", "localhost:-1", "a b:1"}) {
    EXPECT_EQ(server_->Listen(address, &service_).status().code(), absl::StatusCode::kInvalidArgument) << address;
  }
}

TEST_P(TransportTest, TheEndOfATransportEndsItsCalls) {
  HeldCalls held;
  service_.On("Hold", held.Handler());
  auto listener = Listen();
  std::vector<Answer> answers;
  for (int i = 0; i < 10; ++i) answers.push_back(Start("Hold"));
  ASSERT_TRUE(WaitUntil([&] { return held.size() == 10; }));
  call_.reset();
  channel_.reset();
  client_.reset();
  for (const Answer& answer : answers) {
    ASSERT_TRUE(answer.here());
    EXPECT_EQ(answer.status().code(), absl::StatusCode::kCancelled);
  }
  while (held.size() > 0) held.Take()->Reply(Bytes());
}

TEST_P(TransportTest, AHandlerMayCallItsOwnServer) {
  service_.On("Echo", Echo).On("Forward", [&](std::shared_ptr<IncomingCall> call) {
    server_->Connect(address_)->Call(TestService::FullName("Echo"), std::move(call->request()), {.every_step = true},
                                     [call](StatusOr<Bytes> answer) { call->Reply(std::move(answer)); });
  });
  auto listener = Listen();
  auto answer = Start("Forward", Bytes::Of("text"));
  ASSERT_TRUE(Wait(answer).ok()) << answer.status();
  EXPECT_EQ(answer.result()->Flatten(), "text");
}

TEST_P(TransportThreadsTest, TenThousandCallsFromSeveralThreadsAreAllAnswered) {
  service_.On("Echo", Echo);
  auto listener = Listen();
  constexpr int kThreads = 5;
  constexpr int kCalls = 2000;
  std::atomic<int> right{0};
  {
    ThreadGroup threads("callers");
    for (int t = 0; t < kThreads; ++t) {
      ASSERT_TRUE(threads.Start([&, t] {
        auto channel = client_->Connect(address_);
        std::vector<Answer> answers;
        for (int i = 0; i < kCalls; ++i) {
          Answer answer;
          channel->Call(TestService::FullName("Echo"), Bytes::Of(absl::StrCat(t, ":", i)), {.every_step = true},
                        answer.Done());
          answers.push_back(answer);
          // A few in flight at a time.
          if (i % 20 == 19) answers[i - 10].notification().Wait();
        }
        for (int i = 0; i < kCalls; ++i) {
          answers[i].notification().Wait();
          if (answers[i].result().ok() && answers[i].result()->Flatten() == absl::StrCat(t, ":", i)) ++right;
        }
      }));
    }
  }
  EXPECT_EQ(right, kThreads * kCalls);
}

TEST_P(TransportThreadsTest, StopRacesWithCallsAndAnswers) {
  HeldCalls held;
  service_.On("Echo", Echo).On("Cancellable", [](std::shared_ptr<IncomingCall> call) {
    CancellationManager* const cancellation = call->cancellation();
    if (!cancellation->Register(cancellation->NewToken(), [call] { call->Reply(Aborted("stopped")); }))
      call->Reply(Aborted("late"));
  });
  for (int round = 0; round < 20; ++round) {
    auto listener = Listen();
    std::atomic<bool> stop{false};
    std::atomic<int> open{0};
    ThreadGroup threads("callers");
    std::atomic<int> calling{2};
    for (int t = 0; t < 2; ++t) {
      ASSERT_TRUE(threads.Start([&, channel = channel_] {
        for (int i = 0; !stop && i < 200; ++i) {
          ++open;
          channel->Call(TestService::FullName(i % 3 == 0 ? "Cancellable" : "Echo"), Bytes::Of("x"),
                        {.every_step = true}, [&](auto) { --open; });
        }
        --calling;
      }));
    }
    ASSERT_TRUE(WaitUntil([&] { return open > 20; }));
    listener->Stop();
    stop = true;
    ASSERT_TRUE(WaitUntil([&] { return calling == 0 && open == 0; })) << calling << " threads, " << open << " calls";
  }
}

TEST_P(TransportThreadsTest, ManyCallsToAServerThatIsGoneAllFail) {
  service_.On("Echo", Echo);
  auto listener = Listen();
  EXPECT_TRUE(CallStatus("Echo").ok());
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  constexpr int kCalls = 100;  // of some milliseconds each
#else
  constexpr int kCalls = 2000;
#endif
  std::atomic<int> open{0};
  std::atomic<int> calling{3};
  ThreadGroup threads("callers");
  for (int t = 0; t < 3; ++t) {
    ASSERT_TRUE(threads.Start([&, channel = channel_] {
      for (int i = 0; i < kCalls; ++i) {
        Answer answer;
        ++open;
        channel->Call(TestService::FullName("Echo"), Bytes::Of("x"), {},
                      [&, done = answer.Done()](auto result) mutable {
                        --open;
                        done(std::move(result));
                      });
        if (i % 10 == 0) answer.notification().Wait();
      }
      --calling;
    }));
  }
  listener->Stop();
  EXPECT_TRUE(WaitUntil([&] { return calling == 0 && open == 0; })) << calling << " threads, " << open << " calls";
  EXPECT_EQ(CallStatus("Echo").code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace millrace::net
