// What every transport does, whichever it is.
#include "millrace/net/transport.h"

#include <gtest/gtest.h>

#include <atomic>

#include "absl/strings/match.h"
#include "millrace/base/thread_group.h"
#include "millrace/base/thread_pool.h"
#include "millrace/net/grpc/grpc_transport.h"
#include "millrace/net/inproc/inproc_transport.h"
#include "millrace/net/lane/lane_transport.h"
#include "millrace/net/sim/sim_network.h"
#include "millrace/net/transport_testing.h"

namespace millrace::net {
namespace {

constexpr absl::Duration kSoon = absl::Seconds(30);

// Where transports of a kind meet.
class World {
 public:
  virtual ~World() = default;
  virtual std::unique_ptr<Transport> NewTransport() = 0;
  // Until `condition`, which some handler makes true; false when it takes too long.
  virtual bool WaitUntil(const std::function<bool()>& condition) {
    const absl::Time deadline = absl::Now() + kSoon;
    Notification never;
    while (!condition()) {
      if (absl::Now() > deadline) return false;
      never.WaitFor(absl::Milliseconds(1));
    }
    return true;
  }
  virtual bool has_threads() const { return true; }
  // Calls that every step makes are to take their own way from now on.
  virtual void Prepare(Channel& channel) {}
};

class GrpcWorld : public World {
  std::unique_ptr<Transport> NewTransport() override { return NewGrpcTransport(); }
};

class InprocWorld : public World {
  std::unique_ptr<Transport> NewTransport() override { return NewInprocTransport({.network = network_, .scheduler = &pool_}); }
  std::shared_ptr<InprocNetwork> network_ = NewInprocNetwork();
  ThreadPool pool_{"inproc", 2};
};

class InlineWorld : public World {
  std::unique_ptr<Transport> NewTransport() override { return NewInprocTransport({.network = network_}); }
  std::shared_ptr<InprocNetwork> network_ = NewInprocNetwork();
};

class SimWorld : public World {
  std::unique_ptr<Transport> NewTransport() override { return network_.NewTransport(absl::StrCat("host", hosts_++)); }
  bool WaitUntil(const std::function<bool()>& condition) override { return network_.RunUntil(condition); }
  bool has_threads() const override { return false; }
  SimNetwork network_{1};
  int hosts_ = 0;
};

class StreamingSimWorld : public World {
 public:
  StreamingSimWorld() { network_.SetStreams(true); }

 private:
  std::unique_ptr<Transport> NewTransport() override { return network_.NewTransport(absl::StrCat("host", hosts_++)); }
  bool WaitUntil(const std::function<bool()>& condition) override { return network_.RunUntil(condition); }
  bool has_threads() const override { return false; }
  SimNetwork network_{2};
  int hosts_ = 0;
};

template <LaneKind kKind>
class LaneWorld : public World {
  std::unique_ptr<Transport> NewTransport() override { return NewLaneTransport(NewGrpcTransport(), {.kind = kKind}); }
  void Prepare(Channel& channel) override {
    ASSERT_TRUE(WaitUntil([&] {
      Answer answer;
      if (!channel.streams()) channel.Call("/test.Service/None", {}, {.every_step = true}, answer.Done());
      return channel.streams();
    }));
  }
};

using WorldMaker = std::unique_ptr<World> (*)();
struct Kind {
  const char* name;
  WorldMaker make;
};
template <typename T>
std::unique_ptr<World> Make() {
  return std::make_unique<T>();
}

class TransportTest : public ::testing::TestWithParam<Kind> {
 protected:
  // Listens at a port that the system chooses.
  std::unique_ptr<Listener> Listen() {
    auto listener = server_->Listen("localhost:0", &service_);
    EXPECT_TRUE(listener.ok()) << listener.status();
    address_ = absl::StrCat("localhost:", (*listener)->port());
    channel_ = client_->Connect(address_);
    world_->Prepare(*channel_);
    return std::move(listener).value();
  }
  Answer Start(const std::string& method, Bytes request = {}, CallOptions options = {}) {
    Answer answer;
    options.every_step = true;
    call_ = channel_->Call(TestService::FullName(method), std::move(request), options, answer.Done());
    return answer;
  }
  const StatusOr<Bytes>& Wait(const Answer& answer) {
    EXPECT_TRUE(world_->WaitUntil([&] { return answer.here(); })) << "no answer";
    return answer.result();
  }
  Status CallStatus(const std::string& method, Bytes request = {}, CallOptions options = {}) {
    return Wait(Start(method, std::move(request), options)).status();
  }
  bool WaitUntil(const std::function<bool()>& condition) { return world_->WaitUntil(condition); }

  std::unique_ptr<World> world_ = GetParam().make();
  TestService service_;
  std::unique_ptr<Transport> server_ = world_->NewTransport();
  std::unique_ptr<Transport> client_ = world_->NewTransport();
  std::string address_;
  std::shared_ptr<Channel> channel_;
  RefPtr<OutgoingCall> call_;  // the last
};

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
    call->Reply(Status(static_cast<absl::StatusCode>(code), absl::StrCat("{{node a}} said \"%\" \xc3\xa4\nnumber ", code)));
  });
  auto listener = Listen();
  for (int code = 1; code <= 16; ++code) {
    const Status status = CallStatus("Fail", Bytes::Of(std::to_string(code)));
    EXPECT_EQ(static_cast<int>(status.code()), code);
    EXPECT_EQ(status.message(), absl::StrCat("{{node a}} said \"%\" \xc3\xa4\nnumber ", code));
  }
}

TEST_P(TransportTest, ALongErrorKeepsItsCode) {
  service_.On("Fail", [](std::shared_ptr<IncomingCall> call) { call->Reply(InvalidArgument("start ", std::string(1'000'000, '%'))); });
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

TEST_P(TransportTest, TenThousandCallsFromSeveralThreadsAreAllAnswered) {
  if (!world_->has_threads()) GTEST_SKIP() << "one thread only";
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
          channel->Call(TestService::FullName("Echo"), Bytes::Of(absl::StrCat(t, ":", i)), {.every_step = true}, answer.Done());
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

TEST_P(TransportTest, StopRacesWithCallsAndAnswers) {
  if (!world_->has_threads()) GTEST_SKIP() << "one thread only";
  HeldCalls held;
  service_.On("Echo", Echo).On("Cancellable", [](std::shared_ptr<IncomingCall> call) {
    CancellationManager* const cancellation = call->cancellation();
    if (!cancellation->Register(cancellation->NewToken(), [call] { call->Reply(Aborted("stopped")); })) call->Reply(Aborted("late"));
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
          channel->Call(TestService::FullName(i % 3 == 0 ? "Cancellable" : "Echo"), Bytes::Of("x"), {.every_step = true}, [&](auto) { --open; });
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

TEST_P(TransportTest, ManyCallsToAServerThatIsGoneAllFail) {
  if (!world_->has_threads()) GTEST_SKIP() << "one thread only";
  service_.On("Echo", Echo);
  auto listener = Listen();
  EXPECT_TRUE(CallStatus("Echo").ok());
  std::atomic<int> open{0};
  std::atomic<int> calling{3};
  ThreadGroup threads("callers");
  for (int t = 0; t < 3; ++t) {
    ASSERT_TRUE(threads.Start([&, channel = channel_] {
      for (int i = 0; i < 2000; ++i) {
        Answer answer;
        ++open;
        channel->Call(TestService::FullName("Echo"), Bytes::Of("x"), {}, [&, done = answer.Done()](auto result) mutable {
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

// What arrives in a stream, from any thread.
class Arrivals {
 public:
  void Add(std::string text) {
    MutexLock lock(&mu_);
    texts_.push_back(std::move(text));
  }
  std::vector<std::string> all() const {
    MutexLock lock(&mu_);
    return texts_;
  }
  size_t size() const { return all().size(); }

 private:
  mutable Mutex mu_;
  std::vector<std::string> texts_ ABSL_GUARDED_BY(mu_);
};

// Small ones between those that a transport treats as large.
std::string NumberedText(int i) { return absl::StrCat(i, ":") + std::string(i % 5 == 3 ? 300'000 + i : i % 7, static_cast<char>('a' + i % 26)); }

class StreamTest : public TransportTest {
 protected:
  // False: the transport has no streams.
  bool ListenForStreams() {
    listener_ = Listen();
    return channel_->streams();
  }
  Answer Stream(const std::string& method, Bytes request = {}, CallOptions options = {}) {
    Answer answer;
    call_ = channel_->Stream(TestService::FullName(method), std::move(request), options,
                             [this](Bytes message) { arrivals_.Add(message.Flatten()); }, answer.Done());
    return answer;
  }

  Arrivals arrivals_;  // at the client
  std::unique_ptr<Listener> listener_;
};

TEST_P(StreamTest, ATransportWithoutThemSaysSo) {
  service_.On("Echo", Echo);
  if (ListenForStreams()) GTEST_SKIP() << "it has them";
  EXPECT_EQ(Wait(Stream("Echo")).status().code(), absl::StatusCode::kUnimplemented);
}

TEST_P(StreamTest, AnErrorEndsTheCallBehindItsMessages) {
  service_.On("Fail", [](std::shared_ptr<IncomingCall> call) {
    for (int i = 0; i < 20; ++i) call->Send(Bytes::Of("m"));
    call->Reply(Aborted("no more"));
    call->Send(Bytes::Of("dropped"));
  });
  if (!ListenForStreams()) GTEST_SKIP() << "no streams";
  const Answer answer = Stream("Fail");
  EXPECT_EQ(Wait(answer).status(), Aborted("no more"));
  EXPECT_EQ(arrivals_.size(), 20u);
}

TEST_P(StreamTest, MessagesGoBothWaysInOrderAndAllBeforeTheAnswer) {
  constexpr int kMessages = 200;
  Arrivals at_server;
  service_.On("Chat", [&](std::shared_ptr<IncomingCall> call) {
    EXPECT_TRUE(call->streams());
    EXPECT_EQ(call->request().Flatten(), "begin");
    call->Send(Bytes::Of("first"));
    call->OnMessage([&at_server, call](Bytes message) {
      std::string text = message.Flatten();
      if (text == "end") return call->Reply(Bytes::Of("over"));
      at_server.Add(text);
      call->Send(Bytes::Of(std::move(text)));
    });
  });
  if (!ListenForStreams()) GTEST_SKIP() << "no streams";
  std::vector<std::string> expected;
  Answer answer;
  std::vector<std::string> before_answer;
  call_ = channel_->Stream(TestService::FullName("Chat"), Bytes::Of("begin"), {}, [this](Bytes message) { arrivals_.Add(message.Flatten()); },
                           [&, done = answer.Done()](StatusOr<Bytes> result) mutable {
                             before_answer = arrivals_.all();
                             done(std::move(result));
                           });
  for (int i = 0; i < kMessages; ++i) {
    expected.push_back(NumberedText(i));
    call_->Send(Bytes::Of(expected.back()));
  }
  call_->Send(Bytes::Of("end"));
  ASSERT_TRUE(Wait(answer).ok()) << answer.status();
  EXPECT_EQ(answer.result()->Flatten(), "over");
  EXPECT_TRUE(at_server.all() == expected);
  expected.insert(expected.begin(), "first");
  EXPECT_TRUE(before_answer == expected) << before_answer.size();
}

TEST_P(StreamTest, MessagesAreHandledOneAtATime) {
  std::atomic<int> at_once{0};
  std::atomic<int> most{0};
  const auto handle = [&](Bytes) {
    most = std::max(most.load(), ++at_once);
    for (int i = 0; i < 20'000; ++i) static_cast<void>(at_once.load());
    --at_once;
  };
  std::atomic<int> count{0};
  service_.On("Take", [&](std::shared_ptr<IncomingCall> call) {
    call->OnMessage([&, call](Bytes message) {
      handle(message);
      if (++count == 100) call->Reply(Bytes());
    });
  });
  if (!ListenForStreams()) GTEST_SKIP() << "no streams";
  auto answer = Stream("Take");
  for (int i = 0; i < 100; ++i) call_->Send(Bytes::Of(NumberedText(i)));
  EXPECT_TRUE(Wait(answer).ok()) << answer.status();
  EXPECT_EQ(most, 1);
}

TEST_P(StreamTest, MessagesWaitForTheirHandler) {
  HeldCalls held;
  service_.On("Hold", held.Handler());
  if (!ListenForStreams()) GTEST_SKIP() << "no streams";
  auto answer = Stream("Hold");
  std::vector<std::string> expected;
  for (int i = 0; i < 10; ++i) {
    expected.push_back(NumberedText(i));
    call_->Send(Bytes::Of(expected.back()));
  }
  ASSERT_TRUE(WaitUntil([&] { return held.size() == 1; }));
  auto call = held.Take();
  Arrivals at_server;
  call->OnMessage([&](Bytes message) { at_server.Add(message.Flatten()); });
  EXPECT_TRUE(WaitUntil([&] { return at_server.size() == expected.size(); }));
  EXPECT_TRUE(at_server.all() == expected);
  call->Reply(Bytes::Of("x"));
  EXPECT_TRUE(Wait(answer).ok()) << answer.status();
}

TEST_P(StreamTest, MessagesAfterTheEndAreDropped) {
  HeldCalls held;
  service_.On("Hold", held.Handler()).On("Echo", Echo);
  if (!ListenForStreams()) GTEST_SKIP() << "no streams";
  auto answer = Stream("Hold");
  ASSERT_TRUE(WaitUntil([&] { return held.size() == 1; }));
  auto call = held.Take();
  Arrivals at_server;
  call->OnMessage([&](Bytes message) { at_server.Add(message.Flatten()); });
  call->Reply(Bytes::Of("over"));
  call->Send(Bytes::Of("late"));
  EXPECT_TRUE(Wait(answer).ok()) << answer.status();
  call_->Send(Bytes::Of("late"));
  call_->Send(Bytes::Of(std::string(1'000'000, 'x')));
  call_->Cancel();
  EXPECT_TRUE(CallStatus("Echo").ok());
  EXPECT_EQ(at_server.size(), 0);
  EXPECT_EQ(arrivals_.size(), 0);
  EXPECT_EQ(answer.count(), 1);
}

TEST_P(StreamTest, CancellingAStreamEndsItAndReachesTheServer) {
  HeldCalls held;
  service_.On("Hold", held.Handler());
  if (!ListenForStreams()) GTEST_SKIP() << "no streams";
  auto answer = Stream("Hold");
  call_->Send(Bytes::Of("one"));
  ASSERT_TRUE(WaitUntil([&] { return held.size() == 1; }));
  auto call = held.Take();
  call->Send(Bytes::Of("two"));
  ASSERT_TRUE(WaitUntil([&] { return arrivals_.size() == 1; }));
  call_->Cancel();
  EXPECT_EQ(Wait(answer).status().code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(WaitUntil([&] { return call->cancellation()->IsCancelled(); }));
  call->Send(Bytes::Of("three"));
  call->Reply(Bytes());
  EXPECT_EQ(answer.count(), 1);
  EXPECT_EQ(arrivals_.size(), 1);
}

TEST_P(StreamTest, AStreamEndsWithItsTimeout) {
  HeldCalls held;
  service_.On("Hold", held.Handler());
  if (!ListenForStreams()) GTEST_SKIP() << "no streams";
  auto answer = Stream("Hold", {}, {.timeout = absl::Milliseconds(200)});
  ASSERT_TRUE(WaitUntil([&] { return held.size() == 1; }));
  auto call = held.Take();
  EXPECT_EQ(Wait(answer).status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(WaitUntil([&] { return call->cancellation()->IsCancelled(); }));
  call->Reply(Bytes());
}

TEST_P(StreamTest, AServerWhoseClientIsGoneIsTold) {
  HeldCalls held;
  service_.On("Hold", held.Handler());
  if (!ListenForStreams()) GTEST_SKIP() << "no streams";
  auto answer = Stream("Hold");
  ASSERT_TRUE(WaitUntil([&] { return held.size() == 1; }));
  auto call = held.Take();
  call_.reset();
  channel_.reset();
  client_.reset();
  ASSERT_TRUE(answer.here());
  EXPECT_EQ(answer.status().code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(WaitUntil([&] { return call->cancellation()->IsCancelled(); }));
  call->Send(Bytes::Of("x"));
  call->Reply(Bytes());
}

TEST_P(StreamTest, StopCancelsStreamsAndTheirAnswersArriveBehindTheirMessages) {
  HeldCalls held;
  service_.On("Hold", held.Handler());
  if (!ListenForStreams()) GTEST_SKIP() << "no streams";
  auto answer = Stream("Hold");
  ASSERT_TRUE(WaitUntil([&] { return held.size() == 1; }));
  auto call = held.Take();
  CancellationManager* const cancellation = call->cancellation();
  ASSERT_TRUE(cancellation->Register(cancellation->NewToken(), [call] {
    for (int i = 0; i < 10; ++i) call->Send(Bytes::Of(NumberedText(i)));
    call->Reply(Bytes::Of("stopped"));
  }));
  call.reset();
  listener_->Stop();
  ASSERT_TRUE(Wait(answer).ok()) << answer.status();
  EXPECT_EQ(answer.result()->Flatten(), "stopped");
  EXPECT_EQ(arrivals_.size(), 10);
}

TEST_P(StreamTest, AStreamMayBeAnsweredWithAnError) {
  service_.On("Fail", [](std::shared_ptr<IncomingCall> call) {
    call->Send(Bytes::Of("so far"));
    call->Reply(InvalidArgument("no further"));
  });
  if (!ListenForStreams()) GTEST_SKIP() << "no streams";
  auto answer = Stream("Fail");
  EXPECT_EQ(Wait(answer).status(), InvalidArgument("no further"));
  EXPECT_EQ(arrivals_.size(), 1);
}

const Kind kKinds[] = {{"grpc", Make<GrpcWorld>},
                       {"inproc", Make<InprocWorld>},
                       {"inline", Make<InlineWorld>},
                       {"sim", Make<SimWorld>},
                       {"sim_streaming", Make<StreamingSimWorld>},
                       {"lane_shm", Make<LaneWorld<LaneKind::kShm>>},
                       {"lane_tcp", Make<LaneWorld<LaneKind::kTcp>>}};
INSTANTIATE_TEST_SUITE_P(All, TransportTest, ::testing::ValuesIn(kKinds), [](const auto& info) { return std::string(info.param.name); });
INSTANTIATE_TEST_SUITE_P(All, StreamTest, ::testing::ValuesIn(kKinds), [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace millrace::net
