#include "millrace/base/shared_bell.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <new>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "millrace/base/child_process_testing.h"
#include "millrace/base/fd.h"
#include "millrace/base/thread_state_testing.h"

namespace millrace {
namespace {

TEST(SharedBellTest, AWaitThatBeganAfterTheBellRangReturnsAtOnce) {
  SharedBell bell;
  const uint32_t seen = bell.rung();
  bell.Ring();
  EXPECT_TRUE(bell.Wait(seen));
  EXPECT_EQ(bell.rung(), seen + 1);
}

TEST(SharedBellTest, AWaitEndsAfterItsTimeWithoutARing) {
  SharedBell bell;
  EXPECT_FALSE(bell.Wait(bell.rung(), std::chrono::milliseconds(1)));
}

// Two threads take turns; each waits for the other's ring. A wake-up that is lost would stop them.
void TakeTurns(SharedBell* here, SharedBell* there, std::atomic<int>* turn, int own, int turns) {
  for (int i = 0; i < turns; ++i) {
    for (;;) {
      const uint32_t seen = here->rung();
      if (turn->load() % 2 == own) break;
      here->Wait(seen);
    }
    ++*turn;
    there->Ring();
  }
}

TEST(SharedBellTest, NoRingIsLostBetweenThreads) {
  constexpr int kTurns = 20000;
  SharedBell bells[2];
  std::atomic<int> turn{0};
  std::thread other([&] { TakeTurns(&bells[1], &bells[0], &turn, 1, kTurns); });
  TakeTurns(&bells[0], &bells[1], &turn, 0, kTurns);
  other.join();
  EXPECT_EQ(turn.load(), 2 * kTurns);
}

TEST(SharedBellTest, ARingWakesEveryThreadThatWaits) {
  constexpr int kThreads = 4;
  SharedBell bell, waiting;
  std::atomic<int> count{0};
  std::vector<std::thread> threads;
  const uint32_t seen = bell.rung();
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      ++count;
      waiting.Ring();
      bell.Wait(seen);
    });
  }
  for (;;) {
    const uint32_t rung = waiting.rung();
    if (count.load() == kThreads) break;
    waiting.Wait(rung);
  }
  bell.Ring();
  for (std::thread& thread : threads) thread.join();
}

TEST(SharedBellTest, AThreadThatWaitsForOneRingerAloneSeesTheOthersToo) {
  constexpr int kTurns = 20000;
  SharedBell here, there;
  std::atomic<int> others{0}, turn{0};
  // The one who is waited for rings last in each turn, after three others.
  std::thread ringer([&] {
    for (int i = 1; i <= kTurns; ++i) {
      for (uint32_t by = 2; by < 5; ++by) {
        ++others;
        here.Ring(by);
      }
      turn.store(i);
      here.Ring(/*by=*/1);
      for (;;) {
        const uint32_t seen = there.rung();
        if (turn.load() == -i) break;
        there.Wait(seen);
      }
    }
  });
  here.set_only(1);
  for (int i = 1; i <= kTurns; ++i) {
    for (;;) {
      const uint32_t seen = here.rung();
      if (turn.load() == i) break;
      here.Wait(seen);
    }
    ASSERT_EQ(others.load(), 3 * i);
    turn.store(-i);
    there.Ring();
  }
  ringer.join();
}

TEST(SharedBellTest, OnlyTheRingerThatAThreadWaitsForWakesIt) {
  SharedBell bell;
  bell.set_only(1);
  std::atomic<pid_t> waiter{0};
  std::atomic<bool> woken{false};
  std::thread thread([&, seen = bell.rung()] {
    waiter = ThreadState::Here();
    bell.Wait(seen);
    woken = true;
  });
  while (waiter == 0 || !ThreadState(waiter).blocked()) std::this_thread::yield();
  const int64_t before = ThreadState(waiter).times_blocked();
  for (int i = 0; i < 100; ++i) {
    bell.Ring(/*by=*/2);
    while (!woken && !ThreadState(waiter).blocked()) std::this_thread::yield();
  }
  EXPECT_FALSE(woken);
  EXPECT_EQ(ThreadState(waiter).times_blocked(), before);
  bell.Ring(/*by=*/1);
  thread.join();
}

struct BellsAndTurn {
  SharedBell bells[2];
  std::atomic<int> turn;
};

constexpr int kTurnsOfProcesses = 5000;

BellsAndTurn* MapBells(int fd) {
  void* const memory = mmap(nullptr, sizeof(BellsAndTurn), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<BellsAndTurn*>(memory);
}

// The child of the test below; its argument is the shared memory's descriptor.
TEST(SharedBellChild, TakesTurns) {
  if (ChildProcess::Argument() == nullptr) GTEST_SKIP() << "runs as a child of the test below";
  BellsAndTurn* const shared = MapBells(std::atoi(ChildProcess::Argument()));
  ASSERT_NE(shared, nullptr);
  TakeTurns(&shared->bells[1], &shared->bells[0], &shared->turn, 1, kTurnsOfProcesses);
}

TEST(SharedBellTest, NoRingIsLostBetweenProcesses) {
  const Fd fd(memfd_create("shared_bell_test", 0));
  ASSERT_TRUE(fd.ok());
  ASSERT_EQ(ftruncate(fd.get(), sizeof(BellsAndTurn)), 0);
  BellsAndTurn* const shared = MapBells(fd.get());
  ASSERT_NE(shared, nullptr);
  new (shared) BellsAndTurn;
  ChildProcess child("SharedBellChild.TakesTurns", absl::StrCat(fd.get()));
  TakeTurns(&shared->bells[0], &shared->bells[1], &shared->turn, 0, kTurnsOfProcesses);
  EXPECT_EQ(child.WaitForEnd(), 0);
  EXPECT_EQ(shared->turn.load(), 2 * kTurnsOfProcesses);
  munmap(shared, sizeof(BellsAndTurn));
}

}  // namespace
}  // namespace millrace
