// What every transport does, whichever it is.
#include "millrace/net/transport.h"

#include <gtest/gtest.h>

#include <atomic>

#include "absl/strings/match.h"
#include "millrace/base/thread_group.h"
#include "millrace/base/thread_pool.h"
#include "millrace/net/grpc/grpc_transport.h"
#include "millrace/net/inproc/inproc_transport.h"
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
    return std::move(listener).value();
  }
  Answer Start(const std::string& method, Bytes request = {}, CallOptions options = {}) {
    Answer answer;
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
    server_->Connect(address_)->Call(TestService::FullName("Echo"), std::move(call->request()), {},
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
          channel->Call(TestService::FullName("Echo"), Bytes::Of(absl::StrCat(t, ":", i)), {}, answer.Done());
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
          channel->Call(TestService::FullName(i % 3 == 0 ? "Cancellable" : "Echo"), Bytes::Of("x"), {}, [&](auto) { --open; });
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

// Calls that stream, on transports that have them.
class StreamTest : public TransportTest {
 protected:
  // What one side got, in order.
  class Inbox {
   public:
    void Add(const Bytes& message) {
      MutexLock lock(&mu_);
      texts_.push_back(message.Flatten());
    }
    size_t size() const {
      MutexLock lock(&mu_);
      return texts_.size();
    }
    std::vector<std::string> texts() const {
      MutexLock lock(&mu_);
      return texts_;
    }

   private:
    mutable Mutex mu_;
    std::vector<std::string> texts_ ABSL_GUARDED_BY(mu_);
  };

  // Listens; false when the transport has no such calls.
  bool ListenToStreams() {
    listener_ = Listen();
    // A transport may have to meet its peer before it knows.
    return WaitUntilStreams();
  }
  bool WaitUntilStreams() {
    if (channel_->streams()) return true;
    (void)CallStatus("None", {}, {.every_step = true});
    return channel_->streams();
  }
  Answer StartStream(const std::string& method, Bytes request = {}, CallOptions options = {}) {
    Answer answer;
    options.every_step = true;
    call_ = channel_->Stream(TestService::FullName(method), std::move(request), options,
                             [this, answer](Bytes message) {
                               EXPECT_FALSE(answer.here()) << "a message after the answer";
                               received_.Add(message);
                             },
                             answer.Done());
    return answer;
  }

  std::unique_ptr<Listener> listener_;
  Inbox received_;  // by the caller
};

TEST_P(StreamTest, ATransportWithoutThemSaysSo) {
  service_.On("Echo", Echo);
  if (ListenToStreams()) GTEST_SKIP() << "it has them";
  EXPECT_EQ(Wait(StartStream("Echo")).status().code(), absl::StatusCode::kUnimplemented);
}

TEST_P(StreamTest, MessagesGoBothWaysBeforeTheAnswer) {
  service_.On("Add", [](std::shared_ptr<IncomingCall> call) {
    EXPECT_TRUE(call->streams());
    auto sum = std::make_shared<int>(std::stoi(call->request().Flatten()));
    call->Send(Bytes::Of("begin"));
    call->OnMessage([call, sum](const Bytes& message) mutable {
      const std::string text = message.Flatten();
      if (text == "end") return std::exchange(call, nullptr)->Reply(Bytes::Of(std::to_string(*sum)));
      *sum += std::stoi(text);
      call->Send(Bytes::Of(absl::StrCat("now ", *sum)));
    });
  });
  if (!ListenToStreams()) GTEST_SKIP() << "no calls that stream";
  const Answer answer = StartStream("Add", Bytes::Of("1"));
  ASSERT_TRUE(WaitUntil([&] { return received_.size() == 1; }));
  call_->Send(Bytes::Of("2"));
  ASSERT_TRUE(WaitUntil([&] { return received_.size() == 2; }));
  EXPECT_FALSE(answer.here());
  call_->Send(Bytes::Of("3"));
  call_->Send(Bytes::Of("end"));
  ASSERT_TRUE(Wait(answer).ok()) << answer.status();
  EXPECT_EQ(answer.result()->Flatten(), "6");
  EXPECT_EQ(received_.texts(), (std::vector<std::string>{"begin", "now 3", "now 6"}));
}

TEST_P(StreamTest, MessagesKeepTheirOrderAndTheirPieces) {
  static constexpr int kMessages = 300;
  Inbox at_server;
  service_.On("Count", [&](std::shared_ptr<IncomingCall> call) {
    for (int i = 0; i < kMessages; ++i) call->Send(Bytes::Of(std::to_string(i)));
    call->OnMessage([&at_server, call](const Bytes& message) mutable {
      at_server.Add(message);
      if (at_server.size() == kMessages) std::exchange(call, nullptr)->Reply(Bytes());
    });
  });
  if (!ListenToStreams()) GTEST_SKIP() << "no calls that stream";
  const Answer answer = StartStream("Count");
  for (int i = 0; i < kMessages; ++i) {
    Bytes message = Bytes::Of(std::to_string(i));
    message.Append(Bytes::Of(std::string(i % 10 == 0 ? 100'000 : i, 'x')));
    call_->Send(std::move(message));
  }
  ASSERT_TRUE(Wait(answer).ok()) << answer.status();
  std::vector<std::string> sent, got;
  for (int i = 0; i < kMessages; ++i) {
    sent.push_back(std::to_string(i));
    got.push_back(absl::StrCat(i, std::string(i % 10 == 0 ? 100'000 : i, 'x')));
  }
  EXPECT_EQ(received_.texts(), sent);
  EXPECT_TRUE(at_server.texts() == got);
}

TEST_P(StreamTest, WhatIsSentBeforeTheServerListensWaits) {
  HeldCalls held;
  Inbox at_server;
  service_.On("Hold", held.Handler());
  if (!ListenToStreams()) GTEST_SKIP() << "no calls that stream";
  const Answer answer = StartStream("Hold");
  call_->Send(Bytes::Of("early"));
  ASSERT_TRUE(WaitUntil([&] { return held.size() == 1; }));
  auto call = held.Take();
  call->OnMessage([&](const Bytes& message) { at_server.Add(message); });
  ASSERT_TRUE(WaitUntil([&] { return at_server.size() == 1; }));
  call->Reply(Bytes());
  EXPECT_TRUE(Wait(answer).ok());
}

TEST_P(StreamTest, AnErrorEndsTheCallBehindItsMessages) {
  service_.On("Fail", [](std::shared_ptr<IncomingCall> call) {
    for (int i = 0; i < 20; ++i) call->Send(Bytes::Of("m"));
    call->Reply(Aborted("no more"));
    call->Send(Bytes::Of("dropped"));
  });
  if (!ListenToStreams()) GTEST_SKIP() << "no calls that stream";
  const Answer answer = StartStream("Fail");
  EXPECT_EQ(Wait(answer).status(), Aborted("no more"));
  EXPECT_EQ(received_.size(), 20u);
  call_->Send(Bytes::Of("dropped"));
  call_->Cancel();
  EXPECT_EQ(answer.count(), 1);
}

TEST_P(StreamTest, CancellingEndsItAndReachesTheServer) {
  HeldCalls held;
  service_.On("Hold", held.Handler());
  if (!ListenToStreams()) GTEST_SKIP() << "no calls that stream";
  const Answer answer = StartStream("Hold");
  ASSERT_TRUE(WaitUntil([&] { return held.size() == 1; }));
  auto call = held.Take();
  call->OnMessage([](const Bytes&) {});
  call_->Cancel();
  EXPECT_EQ(Wait(answer).status().code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(WaitUntil([&] { return call->cancellation()->IsCancelled(); }));
  call->Send(Bytes::Of("too late"));
  call->Reply(Bytes::Of("too late"));
  EXPECT_EQ(answer.count(), 1);
}

TEST_P(StreamTest, ItEndsWithItsTimeout) {
  HeldCalls held;
  service_.On("Hold", held.Handler());
  if (!ListenToStreams()) GTEST_SKIP() << "no calls that stream";
  const Answer answer = StartStream("Hold", {}, {.timeout = absl::Milliseconds(200)});
  ASSERT_TRUE(WaitUntil([&] { return held.size() == 1; }));
  auto call = held.Take();
  EXPECT_EQ(Wait(answer).status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(WaitUntil([&] { return call->cancellation()->IsCancelled(); }));
  call->Reply(Bytes());
}

TEST_P(StreamTest, ThreadsMaySendAtOnce) {
  if (!world_->has_threads()) GTEST_SKIP() << "one thread only";
  static constexpr int kThreads = 4, kMessages = 500;
  std::atomic<int> at_server{0};
  service_.On("Count", [&](std::shared_ptr<IncomingCall> call) {
    call->OnMessage([&at_server, call](const Bytes& message) mutable {
      call->Send(message);
      if (++at_server == kThreads * kMessages) std::exchange(call, nullptr)->Reply(Bytes());
    });
  });
  if (!ListenToStreams()) GTEST_SKIP() << "no calls that stream";
  const Answer answer = StartStream("Count");
  {
    ThreadGroup threads("senders");
    for (int t = 0; t < kThreads; ++t) {
      ASSERT_TRUE(threads.Start([&, t] {
        for (int i = 0; i < kMessages; ++i) call_->Send(Bytes::Of(absl::StrCat(t, ":", i)));
      }));
    }
  }
  ASSERT_TRUE(Wait(answer).ok()) << answer.status();
  std::vector<int> next(kThreads, 0);
  for (const std::string& text : received_.texts()) {
    const int t = text[0] - '0';
    EXPECT_EQ(text, absl::StrCat(t, ":", next[t]++));
  }
  EXPECT_EQ(next, std::vector<int>(kThreads, kMessages));
}

TEST_P(StreamTest, StopCancelsIt) {
  HeldCalls held;
  service_.On("Hold", held.Handler());
  if (!ListenToStreams()) GTEST_SKIP() << "no calls that stream";
  const Answer answer = StartStream("Hold");
  ASSERT_TRUE(WaitUntil([&] { return held.size() == 1; }));
  auto call = held.Take();
  call->OnMessage([](const Bytes&) {});
  CancellationManager* const cancellation = call->cancellation();
  ASSERT_TRUE(cancellation->Register(cancellation->NewToken(), [call] { call->Reply(Aborted("stopped")); }));
  call.reset();
  listener_->Stop();
  EXPECT_EQ(Wait(answer).status(), Aborted("stopped"));
}

#define MR_ALL_KINDS                                                                                                                         \
  ::testing::Values(Kind{"grpc", Make<GrpcWorld>}, Kind{"inproc", Make<InprocWorld>}, Kind{"inline", Make<InlineWorld>}, Kind{"sim", Make<SimWorld>}, \
                    Kind{"streaming_sim", Make<StreamingSimWorld>})
INSTANTIATE_TEST_SUITE_P(All, StreamTest, MR_ALL_KINDS, [](const auto& info) { return std::string(info.param.name); });
INSTANTIATE_TEST_SUITE_P(All, TransportTest, MR_ALL_KINDS, [](const auto& info) { return std::string(info.param.name); });
#undef MR_ALL_KINDS

}  // namespace
}  // namespace millrace::net
