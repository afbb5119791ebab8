// A thread that waits for an answer reads it off the lane itself (base/event_wait.h).
#include <atomic>
#include <functional>
#include <thread>

#include "millrace/base/affinity.h"
#include "millrace/base/affinity_testing.h"
#include "millrace/base/clock.h"
#include "millrace/base/event_wait.h"
#include "millrace/net/lane/lane_testing.h"

namespace millrace::net {
namespace {

// As WaitUntil, by a thread that does not say that it takes long.
bool WorkUntil(const std::function<bool()>& condition) {
  const absl::Time deadline = Clock::Real()->Now() + absl::Seconds(30);
  while (!condition()) {
    if (Clock::Real()->Now() > deadline) return false;
    absl::SleepFor(absl::Milliseconds(1));
  }
  return true;
}

class LaneWaitTest : public LaneTest {
 protected:
  void SetUp() override { StartWithLane(); }

  // One call by this thread, which waits at the lane; `in_answer` runs when the answer is there, and gets what the call
  // was made for.
  StatusOr<Bytes> CallAndWatch(const std::string& method,
                               absl::AnyInvocable<void(ThreadHandover*)> in_answer = nullptr) {
    EventWait wait;
    StatusOr<Bytes> result = Internal("no answer");
    channel_->Call(TestService::FullName(method), Bytes::Of("x"),
                   {.timeout = absl::Seconds(60), .every_step = true, .handover = wait.handover()},
                   [&](StatusOr<Bytes> answer) {
                     answered_by_ = std::this_thread::get_id();
                     result = std::move(answer);
                     if (in_answer != nullptr) in_answer(wait.handover().get());
                     wait.Notify();
                   });
    wait.Wait();
    return result;
  }

  std::thread::id answered_by_;
};

TEST_F(LaneWaitTest, TheAnswerComesToTheThreadThatWaits) {
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(CallAndWatch("Echo").ok());
    // On a busy machine an answer may come late, and then by another thread.
    if (answered_by_ == std::this_thread::get_id()) return;
  }
  ADD_FAILURE() << "none of them did";
}

TEST_F(LaneWaitTest, OthersGetTheirAnswersBeforeAndAfter) {
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(CallAndWatch("Echo").ok());
    ASSERT_TRUE(CallOn(*channel_, "Echo").ok());
  }
}

TEST_F(LaneWaitTest, AnAnswerThatIsSlowComesToo) {
  std::thread server([&] {
    ASSERT_TRUE(WaitUntil([&] { return held_.size() == 1; }));
    absl::SleepFor(absl::Milliseconds(20));  // longer than a thread stays at the lane
    held_.Take()->Reply(Bytes());
  });
  EXPECT_TRUE(CallAndWatch("Hold").ok());
  server.join();
}

TEST_F(LaneWaitTest, AThreadThatWorksForLongHoldsNobodyBack) {
  StatusOr<Bytes> other = Internal("not called");
  EXPECT_TRUE(CallAndWatch("Echo", [&](ThreadHandover* handover) {
                handover->HandOver();
                other = CallOn(*channel_, "Echo");
              }).ok());
  EXPECT_TRUE(other.ok()) << other.status();
}

TEST_F(LaneWaitTest, AnswersOfOthersDoNotKeepAThreadFromItsOwn) {
  // One that does not let go of the thread it is delivered on, until the waiting thread has its own answer.
  Notification has_own;
  std::thread::id slow_one;
  Answer slow;
  channel_->Call(TestService::FullName("Hold"), {}, {.every_step = true},
                 [&, done = slow.Done()](StatusOr<Bytes> answer) mutable {
                   slow_one = std::this_thread::get_id();
                   EXPECT_TRUE(has_own.WaitFor(absl::Seconds(60)));
                   done(std::move(answer));
                 });
  ASSERT_TRUE(WaitUntil([&] { return held_.size() == 1; }));
  std::shared_ptr<IncomingCall> first = held_.Take();
  std::thread server([&] {
    ASSERT_TRUE(WaitUntil([&] { return held_.size() == 1; }));
    first->Reply(Bytes());
    held_.Take()->Reply(Bytes());
  });
  EXPECT_TRUE(CallAndWatch("Hold").ok());
  has_own.Notify();
  slow.notification().Wait();
  EXPECT_NE(slow_one, std::this_thread::get_id());
  server.join();
}

TEST_F(LaneWaitTest, SeveralThreadsWaitAtOneLane) {
  std::vector<std::thread> threads;
  std::atomic<int> answered{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i) {
        EventWait wait;
        channel_->Call(TestService::FullName("Echo"), Bytes::Of("x"),
                       {.timeout = absl::Seconds(60), .every_step = true, .handover = wait.handover()},
                       [&](StatusOr<Bytes> answer) {
                         answered += answer.ok();
                         wait.Notify();
                       });
        wait.Wait();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(answered, 2000);
}

TEST_F(LaneWaitTest, ACallThatIsGivenUpEndsTheWait) {
  EventWait wait;
  Status status;
  const RefPtr<OutgoingCall> call =
      channel_->Call(TestService::FullName("Hold"), {}, {.every_step = true, .handover = wait.handover()},
                     [&](StatusOr<Bytes> answer) {
                       status = answer.status();
                       wait.Notify();
                     });
  std::thread other([&] {
    ASSERT_TRUE(WaitUntil([&] { return held_.size() == 1; }));
    call->Cancel();
  });
  wait.Wait();
  other.join();
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
  held_.Take()->Reply(Bytes());
}

TEST_F(LaneWaitTest, WhoeverIsAtOtherWorkIsHelpedOut) {
  // No hint is given that the handler takes long, and another call's answer is behind it.
  Answer other;
  StatusOr<Bytes> result = CallAndWatch("Echo", [&](ThreadHandover*) {
    channel_->Call(TestService::FullName("Echo"), {}, {.every_step = true}, other.Done());
    EXPECT_TRUE(WorkUntil([&] { return other.notification().HasBeenNotified(); }));
  });
  EXPECT_TRUE(result.ok()) << result.status();
}

// The same at the side that serves, where a thread watches the connection of a task of this host.
TEST_F(LaneWaitTest, AHandlerThatTakesLongHoldsNoOtherCallBack) {
  std::atomic<bool> at_work{false}, go_on{false};
  TestService service;
  service.On("Echo", Echo).On("Work", [&](const std::shared_ptr<IncomingCall>& call) {
    at_work = true;
    EXPECT_TRUE(WorkUntil([&] { return go_on.load(); }));
    call->Reply(Bytes());
  });
  auto listener = server_->Listen("localhost:0", &service);
  ASSERT_TRUE(listener.ok()) << listener.status();
  const auto channel = client_->Connect(absl::StrCat("localhost:", (*listener)->port()));
  ASSERT_TRUE(HasLane(*channel));
  Answer work;
  channel->Call(TestService::FullName("Work"), {}, {.every_step = true}, work.Done());
  EXPECT_TRUE(WaitUntil([&] { return at_work.load(); }));
  EXPECT_TRUE(CallOn(*channel, "Echo").ok());
  go_on = true;
  work.notification().Wait();
  EXPECT_TRUE(work.result().ok()) << work.status();
}

TEST_F(LaneWaitTest, AHandlerReachesTheThreadThatItRunsOnThroughItsCall) {
  std::atomic<bool> in_handler{false}, elsewhere{true};
  TestService service;
  service.On("Work", [&](const std::shared_ptr<IncomingCall>& call) {
    const RefPtr<ThreadHandover> handover = call->handover();
    in_handler = handover->Here() != nullptr;
    std::thread([&] { elsewhere = handover->Here() != nullptr; }).join();
    handover->HandOver();
    call->Reply(Bytes());
  });
  auto listener = server_->Listen("localhost:0", &service);
  ASSERT_TRUE(listener.ok()) << listener.status();
  const auto channel = client_->Connect(absl::StrCat("localhost:", (*listener)->port()));
  ASSERT_TRUE(HasLane(*channel));
  EXPECT_TRUE(CallOn(*channel, "Work").ok());
  EXPECT_TRUE(in_handler);
  EXPECT_FALSE(elsewhere);
}

// A handler that waits without handing over costs time, not progress.
TEST_F(LaneWaitTest, WhatAStuckHandlerLeftForLaterIsTakenOver) {
  ThreadPool pool("test", 1);
  std::atomic<bool> ran{false}, by_pool{false};
  TestService service;
  service.On("Work", [&](const std::shared_ptr<IncomingCall>& call) {
    call->handover()->RunNext(&pool, [&](EventThread* here) {
      by_pool = here == nullptr;
      ran = true;
    });
    EXPECT_FALSE(ran);
    EXPECT_TRUE(WorkUntil([&] { return ran.load(); }));
    call->Reply(Bytes());
  });
  auto listener = server_->Listen("localhost:0", &service);
  ASSERT_TRUE(listener.ok()) << listener.status();
  const auto channel = client_->Connect(absl::StrCat("localhost:", (*listener)->port()));
  ASSERT_TRUE(HasLane(*channel));
  EXPECT_TRUE(CallOn(*channel, "Work").ok());
  EXPECT_TRUE(by_pool);
}

TEST_F(LaneWaitTest, AThreadGoesOnWithWhatItsEventSetFree) {
  ThreadPool pool("test", 1);
  std::atomic<bool> ran{false};
  std::thread::id handler, next;
  TestService service;
  service.On("Work", [&](const std::shared_ptr<IncomingCall>& call) {
    handler = std::this_thread::get_id();
    call->handover()->RunNext(&pool, [&](EventThread*) {
      next = std::this_thread::get_id();
      ran = true;
    });
    call->Reply(Bytes());
  });
  auto listener = server_->Listen("localhost:0", &service);
  ASSERT_TRUE(listener.ok()) << listener.status();
  const auto channel = client_->Connect(absl::StrCat("localhost:", (*listener)->port()));
  ASSERT_TRUE(HasLane(*channel));
  for (int i = 0; i < 100 && (i == 0 || handler != next); ++i) {  // on a busy machine it may look stuck
    ran = false;
    ASSERT_TRUE(CallOn(*channel, "Work").ok());
    ASSERT_TRUE(WaitUntil([&] { return ran.load(); }));
  }
  EXPECT_EQ(handler, next);
}

// A task that sends messages from a core of its own.
struct BoundCaller {
  BoundCaller(const std::string& address, int core)
      : transport(NewLane()), channel(transport->Connect(address)), core(core) {}
  void Send() {
    std::thread([&] {
      EXPECT_TRUE(BindToCores({core}).ok());
      call->Send(Bytes::Of("x"));
    }).join();
  }

  std::unique_ptr<Transport> transport;
  std::shared_ptr<Channel> channel;
  const int core;
  Answer answer;
  RefPtr<OutgoingStream> call;
  std::shared_ptr<IncomingCall> served;
  std::atomic<int> cores_of_server{0};
};

TEST_F(LaneWaitTest, WithoutCoresToSpareATaskIsServedOnItsOwn) {
  const std::vector<int> cores = AllowedCores();
  const int all = static_cast<int>(cores.size());
  if (all > 32) GTEST_SKIP() << "too many cores to crowd";
  channel_.reset();
  client_ = NewLane();  // closes the first lane
  std::vector<std::unique_ptr<BoundCaller>> callers;
  for (const int core : cores) {
    BoundCaller& caller = *callers.emplace_back(std::make_unique<BoundCaller>(address_, core));
    ASSERT_TRUE(HasLane(*caller.channel));
    caller.call = caller.channel->streaming()->Stream(
        TestService::FullName("Hold"), {}, {}, [](const Bytes&) {}, caller.answer.Done());
    ASSERT_TRUE(WaitUntil([&] { return held_.size() == 1; }));
    caller.served = held_.Take();
    caller.served->stream()->OnMessage([&caller](const Bytes&) { caller.cores_of_server = CoresOfThisThread(); });
  }
  for (const auto& caller : callers) {
    EXPECT_TRUE(WaitUntil([&] {
      caller->Send();
      return caller->cores_of_server == 1;
    }));
  }
  // With one of them gone there is room again.
  const auto end = [](BoundCaller& caller) {
    caller.served->Reply(Bytes());
    caller.answer.notification().Wait();
    caller.channel.reset();
    caller.transport.reset();
  };
  end(*callers.back());
  callers.pop_back();
  for (const auto& caller : callers) {
    EXPECT_TRUE(WaitUntil([&] {
      caller->Send();
      return caller->cores_of_server == all;
    }));
    end(*caller);
  }
}

}  // namespace
}  // namespace millrace::net
