#include "millrace/base/event_wait.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "millrace/base/fd.h"

namespace millrace {
namespace {

// A pipe, and what is told to who watches it.
class Pipe : public EventHandler {
 public:
  explicit Pipe(std::function<void()> on_readable = [] {}) : on_readable_(std::move(on_readable)) {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    read_ = Fd(ends[0]);
    write_ = Fd(ends[1]);
  }
  int fd() const { return read_.get(); }
  void Write() { EXPECT_EQ(write(write_.get(), "x", 1), 1); }

  void OnReadable(EventThread*) override {
    char byte;
    EXPECT_EQ(read(read_.get(), &byte, 1), 1);
    where = std::this_thread::get_id();
    ++read_count;
    on_readable_();
  }
  void OnGivenBack() override { ++given_back; }

  std::atomic<int> read_count{0}, given_back{0};
  std::thread::id where;

 private:
  ~Pipe() override = default;
  const std::function<void()> on_readable_;
  Fd read_, write_;
};

// The calling thread, as what the request passes through sees it.
EventThread* ThreadOf(const EventWait& wait) { return wait.handover()->Here(); }

TEST(EventWaitTest, EndsWhenItIsToldTo) {
  EventWait wait;
  std::thread other([&] { wait.Notify(); });
  wait.Wait();
  other.join();
}

TEST(EventWaitTest, MayBeToldBeforeItWaits) {
  EventWait wait;
  const auto pipe = MakeRef<Pipe>();
  ASSERT_TRUE(ThreadOf(wait)->watch()->Add(pipe, pipe->fd()));
  pipe->Write();
  wait.Notify();
  wait.Wait();
  EXPECT_EQ(pipe->read_count, 0);
  EXPECT_EQ(pipe->given_back, 1);
}

TEST(EventWaitTest, TheWaitingThreadHandlesWhatItWatches) {
  EventWait wait;
  const auto pipe = MakeRef<Pipe>([&] { wait.Notify(); });
  ASSERT_TRUE(ThreadOf(wait)->watch()->Add(pipe, pipe->fd()));
  EXPECT_TRUE(ThreadOf(wait)->watch()->Has(pipe.get()));
  pipe->Write();
  wait.Wait();
  EXPECT_EQ(pipe->read_count, 1);
  EXPECT_EQ(pipe->where, std::this_thread::get_id());
  EXPECT_EQ(pipe->given_back, 1);
  EXPECT_FALSE(ThreadOf(wait)->watch()->Has(pipe.get()));
}

TEST(EventWaitTest, QuickAnswersAreHandledOneByOneAwakeOrAsleep) {
  // Two threads that answer each other soon stay awake for it; a pause now and then lets them sleep.
  constexpr int kRounds = 2000;
  std::atomic<int> sent{0};
  const auto there = MakeRef<Pipe>([&] { ++sent; });
  const auto back = MakeRef<Pipe>();
  std::thread other([&] {
    EventThread here(EventThread::Kind::kServes);
    ASSERT_TRUE(here.watch()->Add(there, there->fd()));
    for (int i = 0; i < kRounds; ++i) {
      ASSERT_TRUE(here.watch()->HandleEvents(&here, -1));
      back->Write();
    }
  });
  EventThread here(EventThread::Kind::kServes);
  EventWatch& watch = *here.watch();
  ASSERT_TRUE(watch.Add(back, back->fd()));
  for (int i = 0; i < kRounds; ++i) {
    there->Write();
    ASSERT_TRUE(watch.HandleEvents(&here, -1));
    ASSERT_EQ(back->read_count, i + 1);
    ASSERT_EQ(sent, i + 1);
    if (i % 100 != 99) continue;
    EXPECT_FALSE(watch.HandleEvents(&here, 1));  // nothing comes
  }
  other.join();
}

TEST(EventWaitTest, AnotherThreadsWordEndsItAtTheDescriptorsToo) {
  // Often, so that the word comes before, at and after the moment of falling asleep.
  for (int i = 0; i < 300; ++i) {
    EventWait wait;
    const auto pipe = MakeRef<Pipe>();
    ASSERT_TRUE(ThreadOf(wait)->watch()->Add(pipe, pipe->fd()));
    std::thread other([&] { wait.Notify(); });
    wait.Wait();
    other.join();
    EXPECT_EQ(pipe->read_count, 0);
    EXPECT_EQ(pipe->given_back, 1);
  }
}

TEST(EventWaitTest, WhatDoesNotComeSoonIsLeftToOthers) {
  EventWait wait;
  const auto pipe = MakeRef<Pipe>();
  ASSERT_TRUE(ThreadOf(wait)->watch()->Add(pipe, pipe->fd()));
  std::thread other([&] {
    while (pipe->given_back == 0) absl::SleepFor(absl::Milliseconds(1));
    wait.Notify();
  });
  wait.Wait();
  other.join();
}

TEST(EventWaitTest, WhoeverWorksForLongOrWaitsGivesItBack) {
  EventWait wait;
  const auto pipe = MakeRef<Pipe>();
  ASSERT_TRUE(ThreadOf(wait)->watch()->Add(pipe, pipe->fd()));
  wait.handover()->HandOver();  // as whatever works for the step does
  EXPECT_EQ(pipe->given_back, 1);
  EXPECT_FALSE(ThreadOf(wait)->watch()->Has(pipe.get()));

  ASSERT_TRUE(ThreadOf(wait)->watch()->Add(pipe, pipe->fd()));
  Notification elsewhere;
  std::thread other([&] {
    while (pipe->given_back < 2) absl::SleepFor(absl::Milliseconds(1));
    elsewhere.Notify();
  });
  ThreadOf(wait)->HandOver();
  elsewhere.Wait();
  other.join();
}

TEST(EventWaitTest, AHandlerMayGiveAllBackAndWatchAgain) {
  EventWait wait;
  RefPtr<Pipe> first, second;
  first = MakeRef<Pipe>([&] {
    ThreadOf(wait)->HandOver();
    ASSERT_TRUE(ThreadOf(wait)->watch()->Add(first, first->fd()));
    if (first->read_count == 2) wait.Notify();
  });
  second = MakeRef<Pipe>();
  ASSERT_TRUE(ThreadOf(wait)->watch()->Add(first, first->fd()));
  ASSERT_TRUE(ThreadOf(wait)->watch()->Add(second, second->fd()));
  for (Pipe* pipe : {first.get(), first.get(), second.get()}) pipe->Write();
  wait.Wait();
  EXPECT_EQ(first->read_count, 2);
  EXPECT_EQ(second->read_count, 0);  // it was given back
  EXPECT_EQ(second->given_back, 1);
  first = nullptr;
}

TEST(EventWaitTest, AWaitWithinAnotherLeavesTheOutersToOthers) {
  EventWait outer;
  const auto pipe = MakeRef<Pipe>();
  ASSERT_TRUE(ThreadOf(outer)->watch()->Add(pipe, pipe->fd()));
  EventThread* const thread = ThreadOf(outer);
  {
    outer.handover()->HandOver();  // as whatever is about to block does
    EXPECT_EQ(pipe->given_back, 1);
    EventWait inner;
    EXPECT_NE(ThreadOf(inner), nullptr);
    EXPECT_NE(ThreadOf(inner), thread);
    inner.Notify();
    inner.Wait();
  }
  EXPECT_EQ(ThreadOf(outer), thread);
  outer.Notify();
  outer.Wait();
}

TEST(EventWaitTest, WhatIsForgottenIsNotGivenBack) {
  EventWait wait;
  const auto pipe = MakeRef<Pipe>();
  ASSERT_TRUE(ThreadOf(wait)->watch()->Add(pipe, pipe->fd()));
  ThreadOf(wait)->watch()->Forget(pipe.get());
  wait.Notify();
  wait.Wait();
  EXPECT_EQ(pipe->given_back, 0);
}

TEST(EventWaitTest, OneThreadAtATimeWatches) {
  EventWait wait;
  const auto pipe = MakeRef<Pipe>();
  const auto watch_elsewhere = [&] {
    bool watched = false;
    std::thread([&] {
      EventWatch other;
      watched = other.Add(pipe, pipe->fd());
    }).join();
    return watched;
  };
  ASSERT_TRUE(ThreadOf(wait)->watch()->Add(pipe, pipe->fd()));
  EXPECT_TRUE(pipe->watched());
  EXPECT_FALSE(watch_elsewhere());
  ThreadOf(wait)->watch()->GiveBack();
  EXPECT_FALSE(pipe->watched());
  EXPECT_TRUE(watch_elsewhere());
}

TEST(EventWaitTest, WhatIsWatchedByAThreadAtOtherWorkIsLeftAlone) {
  EventThread here(EventThread::Kind::kServes);
  EventWatch& watch = *here.watch();
  bool while_handled = false;
  RefPtr<Pipe> pipe;
  pipe = MakeRef<Pipe>([&] { while_handled = pipe->left_alone(); });
  EXPECT_FALSE(pipe->left_alone());
  ASSERT_TRUE(watch.Add(pipe, pipe->fd()));
  EXPECT_TRUE(pipe->left_alone());
  std::thread other([&] {
    while (pipe->left_alone()) absl::SleepFor(absl::Milliseconds(1));
    pipe->Write();
  });
  EXPECT_TRUE(watch.HandleEvents(&here, /*timeout=*/-1));
  other.join();
  EXPECT_TRUE(while_handled);
  EXPECT_FALSE(watch.HandleEvents(&here, /*timeout=*/1));
  pipe = nullptr;
}

TEST(EventWaitTest, ItDoesNotWatchAnyNumber) {
  EventWait wait;
  std::vector<RefPtr<Pipe>> pipes;
  int watched = 0;
  for (int i = 0; i < 100; ++i) {
    pipes.push_back(MakeRef<Pipe>());
    watched += ThreadOf(wait)->watch()->Add(pipes.back(), pipes.back()->fd());
  }
  EXPECT_GT(watched, 1);
  EXPECT_LT(watched, 100);
}

}  // namespace
}  // namespace millrace
