#include "millrace/base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <utility>
#include <vector>

#include "millrace/base/mutex.h"

namespace millrace {
namespace {

TEST(ThreadPoolTest, AnExceptionInAPieceReachesTheCallerOfParallelFor) {
  ThreadPool pool("test", 3);
  for (int round = 0; round < 50; ++round) {
    std::atomic<int> running{0};
    EXPECT_THROW(pool.ParallelFor(64, 1,
                                  [&](int64_t begin, int64_t) {
                                    ++running;
                                    if (begin % 16 == round % 16) {
                                      --running;
                                      throw std::bad_alloc();
                                    }
                                    --running;
                                  }),
                 std::bad_alloc);
    EXPECT_EQ(running, 0);
  }
}

TEST(ThreadPoolTest, AClosureThatThrowsIsDestroyedAndTheThreadGoesOn) {
  ThreadPool pool("test", 1);
  Notification destroyed;
  auto held = std::shared_ptr<void>(nullptr, [&](void*) { destroyed.Notify(); });
  pool.Schedule([held = std::move(held)] { throw std::bad_alloc(); });
  destroyed.Wait();
  Notification ran;
  pool.Schedule([&] { ran.Notify(); });
  ran.Wait();
}

TEST(ThreadPoolTest, DestructorRunsWhatWasScheduled) {
  for (int threads : {0, 1, 4}) {
    std::atomic<int> runs{0};
    {
      ThreadPool pool("test", threads);
      for (int i = 0; i < 1000; ++i) pool.Schedule([&] { ++runs; });
    }
    EXPECT_EQ(runs, 1000) << threads;
  }
}

TEST(ThreadPoolTest, ClosureMayScheduleAnother) {
  std::atomic<int> runs{0};
  {
    ThreadPool pool("test", 2);
    Notification inner_ran;
    pool.Schedule([&] {
      pool.Schedule([&] {
        ++runs;
        inner_ran.Notify();
      });
      ++runs;
    });
    inner_ran.Wait();
  }
  EXPECT_EQ(runs, 2);
}

TEST(ThreadPoolTest, ParallelForCoversTheRangeOnceInFixedPieces) {
  const auto pieces_with = [](int threads, int64_t total, int64_t grain) {
    ThreadPool pool("test", threads);
    Mutex mu;
    std::set<std::pair<int64_t, int64_t>> pieces;
    pool.ParallelFor(total, grain, [&](int64_t begin, int64_t end) {
      MutexLock lock(&mu);
      EXPECT_TRUE(pieces.emplace(begin, end).second);
    });
    return pieces;
  };
  for (const auto& [total, grain] :
       std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {10, 3}, {1000, 7}, {1000, 1000}, {1000, 5000}}) {
    const auto expected = pieces_with(0, total, grain);
    int64_t next = 0;
    for (const auto& [begin, end] : expected) {
      EXPECT_EQ(begin, next);
      next = end;
    }
    EXPECT_EQ(next, total);
    EXPECT_EQ(pieces_with(1, total, grain), expected);
    EXPECT_EQ(pieces_with(5, total, grain), expected);
  }
}

TEST(ThreadPoolTest, EmptyRangeCallsNothing) {
  ThreadPool pool("test", 2);
  pool.ParallelFor(0, 1, [](int64_t, int64_t) { FAIL(); });
  pool.ParallelFor(-5, 1, [](int64_t, int64_t) { FAIL(); });
}

TEST(ThreadPoolTest, NestedParallelForFinishes) {
  ThreadPool pool("test", 3);
  std::atomic<int64_t> sum{0};
  pool.ParallelFor(20, 1, [&](int64_t i, int64_t) {
    pool.ParallelFor(30, 4, [&](int64_t begin, int64_t end) {
      pool.ParallelFor(end - begin, 1, [&](int64_t j, int64_t) { sum += i * 100 + begin + j; });
    });
  });
  EXPECT_EQ(sum, 20 * 435 + 30 * 100 * 190);
}

TEST(ThreadPoolTest, ManyThreadsMayCallParallelForAtOnce) {
  ThreadPool workers("workers", 3);
  std::atomic<int64_t> sum{0};
  {
    ThreadPool callers("callers", 6);
    for (int c = 0; c < 200; ++c) {
      callers.Schedule([&] {
        workers.ParallelFor(100, 3, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) sum += i;
        });
      });
    }
  }
  EXPECT_EQ(sum, 200 * 4950);
}

TEST(ThreadPoolTest, InlineSchedulerRunsOnTheCallersThread) {
  bool ran = false;
  Scheduler::Inline()->Schedule([&] { ran = true; });
  EXPECT_TRUE(ran);
}

TEST(ThreadPoolTest, AClosureMayDestroyItsPool) {
  Notification first, second;
  auto* const pool = new ThreadPool("test", 2);
  pool->Schedule([&, pool] {
    pool->Schedule([&] { second.Notify(); });
    delete pool;  // runs what was scheduled
    EXPECT_TRUE(second.HasBeenNotified());
    first.Notify();
  });
  first.Wait();
}

}  // namespace
}  // namespace millrace
