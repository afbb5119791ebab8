// The contract of streaming calls, for every transport that supports them.
#include <algorithm>
#include <atomic>

#include "gtest/gtest.h"
#include "millrace/base/mutex.h"
#include "millrace/net/every_transport_testing.h"

namespace millrace::net {
namespace {

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
std::string NumberedText(int i) {
  return absl::StrCat(i, ":") + std::string(i % 5 == 3 ? 300'000 + i : i % 7, static_cast<char>('a' + i % 26));
}

class StreamTest : public EveryTransport {
 protected:
  void ListenForStreams() {
    service_.On("Hold", held_.Handler());
    listener_ = Listen();
    ASSERT_NE(channel_->streaming(), nullptr);
  }
  Answer Stream(const std::string& method, Bytes request = {}, CallOptions options = {}) {
    Answer answer;
    stream_ = channel_->streaming()->Stream(
        TestService::FullName(method), std::move(request), options,
        [this](Bytes message) { arrivals_.Add(message.Flatten()); }, answer.Done());
    return answer;
  }

  // A stream that the server has and has not answered: its end there. The client's is stream_, and `answer`.
  std::shared_ptr<IncomingCall> HoldStream(Answer* answer, CallOptions options = {}) {
    *answer = Stream("Hold", {}, options);
    EXPECT_TRUE(WaitUntil([&] { return held_.size() == 1; }));
    return held_.Take();
  }

  HeldCalls held_;
  RefPtr<OutgoingStream> stream_;  // the last
  Arrivals arrivals_;              // at the client
  std::unique_ptr<Listener> listener_;
};

INSTANTIATE_TEST_SUITE_P(All, StreamTest,
                         ::testing::ValuesIn(KindsWhere([](const Kind& kind) { return kind.streams; })), NameOfKind);

class NoStreamsTest : public EveryTransport {};
INSTANTIATE_TEST_SUITE_P(All, NoStreamsTest,
                         ::testing::ValuesIn(KindsWhere([](const Kind& kind) { return !kind.streams; })), NameOfKind);

TEST_P(NoStreamsTest, ATransportWithoutThemSaysSo) {
  service_.On("Echo", Echo);
  auto listener = Listen();
  EXPECT_EQ(channel_->streaming(), nullptr);
  EXPECT_EQ(CallStatus("Echo"), absl::OkStatus());
  EXPECT_EQ(channel_->streaming(), nullptr);
}

TEST_P(StreamTest, AnErrorEndsTheCallBehindItsMessages) {
  service_.On("Fail", [](std::shared_ptr<IncomingCall> call) {
    for (int i = 0; i < 20; ++i) call->stream()->Send(Bytes::Of("m"));
    call->Reply(Aborted("no more"));
    call->stream()->Send(Bytes::Of("dropped"));
  });
  ListenForStreams();
  const Answer answer = Stream("Fail");
  EXPECT_EQ(Wait(answer).status(), Aborted("no more"));
  EXPECT_EQ(arrivals_.size(), 20u);
}

TEST_P(StreamTest, MessagesGoBothWaysInOrderAndAllBeforeTheAnswer) {
  constexpr int kMessages = 200;
  Arrivals at_server;
  service_.On("Chat", [&](std::shared_ptr<IncomingCall> call) {
    ASSERT_NE(call->stream(), nullptr);
    EXPECT_EQ(call->request().Flatten(), "begin");
    call->stream()->Send(Bytes::Of("first"));
    call->stream()->OnMessage([&at_server, call](Bytes message) {
      std::string text = message.Flatten();
      if (text == "end") return call->Reply(Bytes::Of("over"));
      at_server.Add(text);
      call->stream()->Send(Bytes::Of(std::move(text)));
    });
  });
  ListenForStreams();
  std::vector<std::string> expected;
  Answer answer;
  std::vector<std::string> before_answer;
  stream_ = channel_->streaming()->Stream(
      TestService::FullName("Chat"), Bytes::Of("begin"), {},
      [this](Bytes message) { arrivals_.Add(message.Flatten()); },
      [&, done = answer.Done()](StatusOr<Bytes> result) mutable {
        before_answer = arrivals_.all();
        done(std::move(result));
      });
  for (int i = 0; i < kMessages; ++i) {
    expected.push_back(NumberedText(i));
    stream_->Send(Bytes::Of(expected.back()));
  }
  stream_->Send(Bytes::Of("end"));
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
    call->stream()->OnMessage([&, call](Bytes message) {
      handle(message);
      if (++count == 100) call->Reply(Bytes());
    });
  });
  ListenForStreams();
  auto answer = Stream("Take");
  for (int i = 0; i < 100; ++i) stream_->Send(Bytes::Of(NumberedText(i)));
  EXPECT_TRUE(Wait(answer).ok()) << answer.status();
  EXPECT_EQ(count, 100);  // which also tells a sanitizer that the handlers are done: it cannot see it from the answer
  EXPECT_EQ(most, 1);
}

TEST_P(StreamTest, MessagesWaitForTheirHandler) {
  ListenForStreams();
  auto answer = Stream("Hold");
  std::vector<std::string> expected;
  for (int i = 0; i < 10; ++i) {
    expected.push_back(NumberedText(i));
    stream_->Send(Bytes::Of(expected.back()));
  }
  ASSERT_TRUE(WaitUntil([&] { return held_.size() == 1; }));
  auto call = held_.Take();
  Arrivals at_server;
  call->stream()->OnMessage([&](Bytes message) { at_server.Add(message.Flatten()); });
  EXPECT_TRUE(WaitUntil([&] { return at_server.size() == expected.size(); }));
  EXPECT_TRUE(at_server.all() == expected);
  call->Reply(Bytes::Of("x"));
  EXPECT_TRUE(Wait(answer).ok()) << answer.status();
}

TEST_P(StreamTest, MessagesAfterTheEndAreDropped) {
  service_.On("Echo", Echo);
  ListenForStreams();
  Answer answer;
  auto call = HoldStream(&answer);
  Arrivals at_server;
  call->stream()->OnMessage([&](Bytes message) { at_server.Add(message.Flatten()); });
  call->Reply(Bytes::Of("over"));
  call->stream()->Send(Bytes::Of("late"));
  EXPECT_TRUE(Wait(answer).ok()) << answer.status();
  stream_->Send(Bytes::Of("late"));
  stream_->Send(Bytes::Of(std::string(1'000'000, 'x')));
  stream_->Cancel();
  EXPECT_TRUE(CallStatus("Echo").ok());
  EXPECT_EQ(at_server.size(), 0);
  EXPECT_EQ(arrivals_.size(), 0);
  EXPECT_EQ(answer.count(), 1);
}

TEST_P(StreamTest, CancellingAStreamEndsItAndReachesTheServer) {
  ListenForStreams();
  Answer answer;
  auto call = HoldStream(&answer);
  stream_->Send(Bytes::Of("one"));
  call->stream()->Send(Bytes::Of("two"));
  ASSERT_TRUE(WaitUntil([&] { return arrivals_.size() == 1; }));
  stream_->Cancel();
  EXPECT_EQ(Wait(answer).status().code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(WaitUntil([&] { return call->cancellation()->IsCancelled(); }));
  call->stream()->Send(Bytes::Of("three"));
  call->Reply(Bytes());
  EXPECT_EQ(answer.count(), 1);
  EXPECT_EQ(arrivals_.size(), 1);
}

TEST_P(StreamTest, AStreamEndsWithItsTimeout) {
  ListenForStreams();
  Answer answer;
  auto call = HoldStream(&answer, {.timeout = absl::Milliseconds(200)});
  EXPECT_EQ(Wait(answer).status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(WaitUntil([&] { return call->cancellation()->IsCancelled(); }));
  call->Reply(Bytes());
}

TEST_P(StreamTest, AServerWhoseClientIsGoneIsTold) {
  ListenForStreams();
  Answer answer;
  auto call = HoldStream(&answer);
  stream_.reset();
  channel_.reset();
  client_.reset();
  ASSERT_TRUE(answer.here());
  EXPECT_EQ(answer.status().code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(WaitUntil([&] { return call->cancellation()->IsCancelled(); }));
  call->stream()->Send(Bytes::Of("x"));
  call->Reply(Bytes());
}

TEST_P(StreamTest, StopCancelsStreamsAndTheirAnswersArriveBehindTheirMessages) {
  ListenForStreams();
  Answer answer;
  auto call = HoldStream(&answer);
  CancellationManager* const cancellation = call->cancellation();
  ASSERT_TRUE(cancellation->Register(cancellation->NewToken(), [call] {
    for (int i = 0; i < 10; ++i) call->stream()->Send(Bytes::Of(NumberedText(i)));
    call->Reply(Bytes::Of("stopped"));
  }));
  call.reset();
  listener_->Stop();
  ASSERT_TRUE(Wait(answer).ok()) << answer.status();
  EXPECT_EQ(answer.result()->Flatten(), "stopped");
  EXPECT_EQ(arrivals_.size(), 10);
}

}  // namespace
}  // namespace millrace::net
