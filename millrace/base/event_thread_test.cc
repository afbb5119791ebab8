#include "millrace/base/event_thread.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "millrace/base/mutex.h"

namespace millrace {
namespace {

class EventThreadTest : public ::testing::Test {
 protected:
  // Notes on which thread it ran.
  auto Note(Notification* ran = nullptr) {
    return [this, ran](EventThread* here) {
      where_ = std::this_thread::get_id();
      passed_ = here;
      if (ran != nullptr) ran->Notify();
    };
  }

  ThreadPool pool_{"test", 1};
  EventThread here_{EventThread::Kind::kServes};
  std::thread::id where_;
  EventThread* passed_ = nullptr;
};

TEST_F(EventThreadTest, WhatIsLeftRunsInOrderWhenTheEventHasBeenHandled) {
  std::vector<int> order;
  here_.RunNext(&pool_, [&](EventThread* here) {
    order.push_back(2);
    here->RunNext(&pool_, [&](EventThread*) { order.push_back(4); });
  });
  here_.RunNext(&pool_, [&](EventThread*) { order.push_back(3); });
  here_.RunNext(&pool_, Note());
  order.push_back(1);
  here_.RunLeft();
  EXPECT_EQ(order, (std::vector<int>{1, 2, 3, 4}));
  EXPECT_EQ(where_, std::this_thread::get_id());
  EXPECT_EQ(passed_, &here_);
  order.clear();
  here_.RunLeft();  // nothing runs twice
  EXPECT_TRUE(order.empty());
}

TEST_F(EventThreadTest, WhoeverWorksForLongHandsItOver) {
  Notification ran;
  here_.RunNext(&pool_, Note(&ran));
  here_.HandOver();
  EXPECT_TRUE(ran.WaitFor(absl::Seconds(30)));
  EXPECT_NE(where_, std::this_thread::get_id());
  EXPECT_EQ(passed_, nullptr);
}

TEST_F(EventThreadTest, AClosureMayHandTheRestOver) {
  Notification ran;
  here_.RunNext(&pool_, [&](EventThread* here) {
    here->HandOver();
    EXPECT_TRUE(ran.WaitFor(absl::Seconds(30)));  // for what this thread would have done next
  });
  here_.RunNext(&pool_, Note(&ran));
  here_.RunLeft();
  EXPECT_NE(where_, std::this_thread::get_id());
}

TEST_F(EventThreadTest, WhatIsStuckIsTakenOver) {
  Notification ran;
  here_.RunNext(&pool_, Note(&ran));
  std::thread other([&] {
    EXPECT_TRUE(here_.HandOverIfStuck());  // it may be on its way
    EXPECT_FALSE(ran.HasBeenNotified());
    EXPECT_FALSE(here_.HandOverIfStuck());
  });
  EXPECT_TRUE(ran.WaitFor(absl::Seconds(30)));  // nobody was told that this thread waits
  other.join();
  EXPECT_NE(where_, std::this_thread::get_id());
}

TEST_F(EventThreadTest, WhatGoesOnIsNotStuck) {
  int ran = 0;
  here_.RunNext(&pool_, [&](EventThread* here) {
    here_.HandOverIfStuck();
    here->RunNext(&pool_, Note());
    ++ran;
  });
  here_.RunNext(&pool_, [&](EventThread*) {
    here_.HandOverIfStuck();  // something is left, but not what was left at the last look
    ++ran;
  });
  here_.RunLeft();
  EXPECT_EQ(ran, 2);
  EXPECT_EQ(where_, std::this_thread::get_id());
}

TEST_F(EventThreadTest, ItSaysThatSomethingIsLeft) {
  int left = 0;
  EventThread here(EventThread::Kind::kServes, [&] { ++left; });
  here.RunNext(&pool_, Note());
  EXPECT_EQ(left, 1);
  here.RunLeft();
}

TEST_F(EventThreadTest, WhatIsLeftAtItsEndRunsToo) {
  Notification ran;
  {
    EventThread here(EventThread::Kind::kServes);
    here.RunNext(&pool_, Note(&ran));
  }
  EXPECT_TRUE(ran.WaitFor(absl::Seconds(30)));
}

TEST_F(EventThreadTest, AThreadThatAwaitsAnAnswerRunsNothingForOthers) {
  EventThread caller(EventThread::Kind::kAwaitsAnswer);
  Notification ran;
  caller.RunNext(&pool_, Note(&ran));
  EXPECT_TRUE(ran.WaitFor(absl::Seconds(30)));
  EXPECT_NE(where_, std::this_thread::get_id());
}

TEST_F(EventThreadTest, AnInlineSchedulerRunsItAtOnce) {
  here_.RunNext(Scheduler::Inline(), Note());
  EXPECT_EQ(where_, std::this_thread::get_id());
}

}  // namespace
}  // namespace millrace
