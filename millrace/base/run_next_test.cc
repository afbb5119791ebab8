#include "millrace/base/run_next.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "millrace/base/mutex.h"

namespace millrace {
namespace {

class RunNextTest : public ::testing::Test {
 protected:
  // Notes on which thread it ran.
  auto Note(Notification* ran = nullptr) {
    return [this, ran] {
      where_ = std::this_thread::get_id();
      if (ran != nullptr) ran->Notify();
    };
  }

  ThreadPool pool_{"test", 1};
  std::thread::id where_;
};

TEST_F(RunNextTest, OutsideOfAScopeThePoolRunsIt) {
  Notification ran;
  RunNext(&pool_, Note(&ran));
  ran.Wait();
  EXPECT_NE(where_, std::this_thread::get_id());
}

TEST_F(RunNextTest, AScopeEndsWithWhatWasLeftForItInOrder) {
  std::vector<int> order;
  {
    RunNextScope scope;
    {
      RunNextScope inner;  // a part of it
      RunNext(&pool_, [&] {
        order.push_back(2);
        RunNext(&pool_, [&] { order.push_back(4); });
      });
    }
    RunNext(&pool_, [&] { order.push_back(3); });
    RunNext(&pool_, Note());
    order.push_back(1);
  }
  EXPECT_EQ(order, (std::vector<int>{1, 2, 3, 4}));
  EXPECT_EQ(where_, std::this_thread::get_id());
  // It is over.
  Notification ran;
  RunNext(&pool_, Note(&ran));
  ran.Wait();
  EXPECT_NE(where_, std::this_thread::get_id());
}

TEST_F(RunNextTest, WhoeverWorksForLongHandsItOver) {
  RunNextScope scope;
  Notification ran;
  RunNext(&pool_, Note(&ran));
  HandOverNext();
  EXPECT_TRUE(ran.WaitFor(absl::Seconds(30)));
  EXPECT_NE(where_, std::this_thread::get_id());
}

TEST_F(RunNextTest, WhoeverWaitsHandsItOver) {
  RunNextScope scope;
  Notification ran;
  RunNext(&pool_, Note(&ran));
  ran.Wait();  // for what this thread would have done itself
  EXPECT_NE(where_, std::this_thread::get_id());
}

TEST_F(RunNextTest, WorkOfManyPiecesHandsItOver) {
  RunNextScope scope;
  Notification ran;
  RunNext(&pool_, Note(&ran));
  ThreadPool others("others", 1);
  bool before = false;
  others.ParallelFor(100, 1, [&](int64_t begin, int64_t) {
    if (begin == 0) before = ran.WaitFor(absl::Seconds(30));
  });
  EXPECT_TRUE(before);
  // Also where a piece leaves something for the pool that it runs on.
  std::atomic<int> left{0};
  others.ParallelFor(2, 1, [&](int64_t, int64_t) { RunNext(&others, [&] { ++left; }); });
  while (left < 2) std::this_thread::yield();
}

TEST_F(RunNextTest, AnInlineSchedulerRunsItAtOnce) {
  RunNextScope scope;
  bool ran = false;
  RunNext(Scheduler::Inline(), [&] { ran = true; });
  EXPECT_TRUE(ran);
}

}  // namespace
}  // namespace millrace
