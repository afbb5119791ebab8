#include "millrace/base/thread_handover.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "millrace/base/mutex.h"

namespace millrace {
namespace {

class ThreadHandoverTest : public ::testing::Test {
 protected:
  ThreadPool pool_{"test", 1};
  const RefPtr<ThreadHandover> step_ = MakeRef<ThreadHandover>();
  EventThread thread_{EventThread::Kind::kServes};
};

TEST_F(ThreadHandoverTest, AThreadIsKnownWhileItWorksForTheStep) {
  EXPECT_EQ(step_->Here(), nullptr);
  {
    const ThreadHandover::Entry entry(step_, &thread_);
    EXPECT_EQ(step_->Here(), &thread_);
    {
      const ThreadHandover::Entry again(step_, &thread_);
      EXPECT_EQ(step_->Here(), &thread_);
    }
    EXPECT_EQ(step_->Here(), &thread_);
    std::thread([&] { EXPECT_EQ(step_->Here(), nullptr); }).join();
  }
  EXPECT_EQ(step_->Here(), nullptr);
}

TEST_F(ThreadHandoverTest, NothingHappensWithoutAStepOrAThread) {
  const ThreadHandover::Entry no_step(nullptr, &thread_);
  const ThreadHandover::Entry no_thread(step_, nullptr);
  EXPECT_EQ(step_->Here(), nullptr);
  step_->HandOver();
}

TEST_F(ThreadHandoverTest, WhoeverWaitsHandsItOver) {
  const ThreadHandover::Entry entry(step_, &thread_);
  Notification ran;
  std::thread::id where;
  step_->RunNext(&pool_, [&](EventThread*) {
    where = std::this_thread::get_id();
    ran.Notify();
  });
  step_->HandOver();
  EXPECT_TRUE(ran.WaitFor(absl::Seconds(30)));  // for what this thread would have done itself
  EXPECT_NE(where, std::this_thread::get_id());
}

TEST_F(ThreadHandoverTest, ThreadsThatHaveNotEnteredHandNothingOver) {
  const ThreadHandover::Entry entry(step_, &thread_);
  bool ran_here = false;
  step_->RunNext(&pool_, [&](EventThread* here) { ran_here = here == &thread_; });
  std::thread([&] { step_->HandOver(); }).join();
  thread_.RunLeft();
  EXPECT_TRUE(ran_here);
}

TEST_F(ThreadHandoverTest, OutsideOfAnEntryThePoolRunsWhatComesNext) {
  Notification ran;
  std::thread::id where;
  step_->RunNext(&pool_, [&](EventThread* here) {
    EXPECT_EQ(here, nullptr);
    where = std::this_thread::get_id();
    ran.Notify();
  });
  EXPECT_TRUE(ran.WaitFor(absl::Seconds(30)));
  EXPECT_NE(where, std::this_thread::get_id());
}

TEST_F(ThreadHandoverTest, AStepMayEndWithinAnEntry) {
  RefPtr<ThreadHandover> step = MakeRef<ThreadHandover>();
  const ThreadHandover::Entry entry(step, &thread_);
  step.reset();
}

TEST_F(ThreadHandoverTest, ManyThreadsComeAndGo) {
  // More than it has room for: those that do not fit in are not known, and every other is by its own.
  std::vector<std::thread> threads;
  std::atomic<int> known{0};
  for (int t = 0; t < 16; ++t) {
    threads.emplace_back([&] {
      EventThread here(EventThread::Kind::kServes);
      for (int i = 0; i < 2000; ++i) {
        const ThreadHandover::Entry entry(step_, &here);
        EventThread* const found = step_->Here();
        ASSERT_TRUE(found == &here || found == nullptr);
        known += found == &here;
        step_->HandOver();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(known, 0);
  EXPECT_EQ(step_->Here(), nullptr);
}

}  // namespace
}  // namespace millrace
