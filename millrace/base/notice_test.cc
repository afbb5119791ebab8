#include "millrace/base/notice.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <atomic>

#include "absl/strings/match.h"
#include "gtest/gtest-spi.h"
#include "gtest/gtest.h"
#include "millrace/base/child_process_testing.h"

namespace millrace {
namespace {

TEST(NoticeBoard, EveryReactionIsCalledOnceByTheFirstNotice) {
  NoticeBoard board;
  std::atomic<int> calls{0}, signal{0};
  NoticeSubscription one = board.Subscribe([&](const Notice& notice) {
    ++calls;
    signal = notice.signal;
  });
  NoticeSubscription two = board.Subscribe([&](const Notice&) { ++calls; });
  EXPECT_EQ(board.given(), std::nullopt);
  board.Give({.signal = SIGUSR1});
  board.Give({.signal = SIGTERM});
  one.Reset();
  two.Reset();
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(signal, SIGUSR1);
  EXPECT_EQ(board.given()->SignalName(), "SIGUSR1");
}

TEST(NoticeBoard, WhoComesAfterTheNoticeIsCalledToo) {
  NoticeBoard board;
  board.Give({});
  Notification called;
  const NoticeSubscription late = board.Subscribe([&](const Notice&) { called.Notify(); });
  called.Wait();
}

TEST(NoticeBoard, AReactionThatIsUnsubscribedIsNotCalledAndOneThatRunsIsWaitedFor) {
  NoticeBoard board;
  std::atomic<bool> gone_called{false}, ended{false};
  NoticeSubscription gone = board.Subscribe([&](const Notice&) { gone_called = true; });
  gone.Reset();
  Notification begun, go;
  NoticeSubscription slow = board.Subscribe([&](const Notice&) {
    begun.Notify();
    go.Wait();
    ended = true;
  });
  board.Give({});
  begun.Wait();
  go.Notify();
  slow.Reset();
  EXPECT_TRUE(ended);
  EXPECT_FALSE(gone_called);
}

TEST(NoticeBoard, AReactionMayEndItsOwnSubscription) {
  NoticeBoard board;
  NoticeSubscription own;
  Notification done;
  own = board.Subscribe([&](const Notice&) {
    own.Reset();
    done.Notify();
  });
  board.Give({});
  done.Wait();
}

TEST(NoticeSignalNumber, AcceptsNamesWithAndWithoutSig) {
  EXPECT_EQ(NoticeSignalNumber("USR1"), SIGUSR1);
  EXPECT_EQ(NoticeSignalNumber("SIGTERM"), SIGTERM);
  for (const char* name : {"", "KILL", "SIGSTOP", "usr1", "10", "SIG"}) EXPECT_EQ(NoticeSignalNumber(name), 0) << name;
}

// Until this process ends: signals that come together are one notice, so it takes a while until one is the second.
void KeepRaising() {
  while (true) {
    raise(SIGTERM);
    poll(nullptr, 0, 20);
  }
}

// What a child does, by its argument.
TEST(NoticeChild, Behaves) {
  const char* argument = ChildProcess::Argument();
  if (argument == nullptr) GTEST_SKIP() << "runs as a child of the tests below";
  const std::string role = argument;
  if (role == "own handler") {
    static std::atomic<bool> mine{false};
    signal(SIGTERM, [](int) { mine = true; });
    const NoticeSubscription none = OnNotice([](const Notice&) { ChildProcess::Say("noticed"); });
    raise(SIGTERM);
    ChildProcess::Say(mine ? "mine" : "not mine");
    return;
  }
  if (role == "blocked") {
    sigset_t term;
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &term, nullptr);
    const NoticeSubscription none = OnNotice([](const Notice&) { ChildProcess::Say("noticed"); });
    raise(SIGTERM);
    int number = 0;
    sigwait(&term, &number);
    ChildProcess::Say(absl::StrCat("waited for ", number));
    return;
  }
  if (role == "default again") {
    {
      const NoticeSubscription gone = OnNotice([](const Notice&) {});
    }
    raise(SIGTERM);
    ChildProcess::Say("alive");
    return;
  }
  if (role == "forks") {
    const NoticeSubscription notices = OnNotice([](const Notice&) { ChildProcess::Say("noticed"); });
    const pid_t forked = fork();
    if (forked == 0) {
      raise(SIGTERM);
      _exit(7);
    }
    int status = 0;
    ASSERT_EQ(waitpid(forked, &status, 0), forked);
    ChildProcess::Say(WIFSIGNALED(status) ? absl::StrCat("forked ended by ", WTERMSIG(status)) : "forked lives on");
    return;
  }
  if (absl::StartsWith(role, "launched")) {
    // As a keeper starts it: its own parent, and a pipe for its words.
    int fds[2];
    ASSERT_EQ(pipe(fds), 0);
    setenv("MILLRACE_PROGRESS_FD", absl::StrCat(fds[1]).c_str(), 1);
    const pid_t keeper = role == "launched by parent" ? getppid() : role == "launched by itself" ? getpid() : 1;
    setenv(kKeeperVariable, absl::StrCat(keeper).c_str(), 1);
    setenv(kGraceVariable, "600", 1);
    Notification come;
    const NoticeSubscription notices = OnNotice([&](const Notice&) { come.Notify(); });
    ChildProcess::Say("ready");
    if (role == "launched by itself") {
      kill(getpid(), SIGTERM);
      come.Wait();
      sigqueue(getpid(), SIGTERM, sigval{});
      ChildProcess::Say("lives");
      kill(getpid(), SIGTERM);
      ChildProcess::Say("lives on");
      return;
    }
    if (role == "launched by parent") {
      come.Wait();
      ChildProcess::Say("noticed");
      return;
    }
    char line[64] = {};
    ASSERT_GT(read(fds[0], line, sizeof(line) - 1), 0);
    ChildProcess::Say(absl::StrCat("told ", absl::string_view(line, std::string(line).find('\n')),
                                   come.HasBeenNotified() ? ", noticed" : ", waits"));
    KeepRaising();
    return;
  }
  if (role == "twice at once") {
    Notification come;
    const NoticeSubscription notices = OnNotice([&](const Notice&) { come.Notify(); });
    raise(SIGTERM);
    raise(SIGTERM);
    come.Wait();
    ChildProcess::Say("noticed once");
    return;
  }
  // Ends by a notice.
  Notification come;
  std::string name;
  const NoticeSubscription notices = OnNotice([&](const Notice& notice) {
    name = notice.SignalName();
    come.Notify();
  });
  ChildProcess::Say("ready");
  come.Wait();
  ChildProcess::Say(absl::StrCat("noticed ", name));
  if (role == "twice") KeepRaising();
  NoticeBoard::OfProcess()->SetExitCode();
}

constexpr char kChild[] = "NoticeChild.Behaves";

TEST(NoticeSignals, SigtermIsANoticeAndTheExitCodeSaysSo) {
  ChildProcess child(kChild, "ends");
  ASSERT_TRUE(child.Hears("ready"));
  kill(child.pid(), SIGTERM);
  EXPECT_TRUE(child.Hears("noticed SIGTERM"));
  const int status = child.WaitForEnd();
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), kNoticeExitCode);
}

TEST(NoticeSignals, TheSignalOfTheEnvironmentIsOneToo) {
  setenv(kNoticeSignalVariable, "USR1", 1);
  ChildProcess child(kChild, "ends");
  unsetenv(kNoticeSignalVariable);
  ASSERT_TRUE(child.Hears("ready"));
  kill(child.pid(), SIGUSR1);
  EXPECT_TRUE(child.Hears("noticed SIGUSR1"));
}

TEST(NoticeSignals, ASecondSignalEndsTheProcess) {
  ChildProcess child(kChild, "twice");
  ASSERT_TRUE(child.Hears("ready"));
  kill(child.pid(), SIGTERM);
  EXPECT_TRUE(child.Hears("noticed SIGTERM"));
  const int status = child.WaitForEnd();
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGTERM);
}

TEST(NoticeSignals, OneThatASchedulerSendsTwiceIsOneNotice) {
  ChildProcess child(kChild, "twice at once");
  EXPECT_TRUE(child.Hears("noticed once"));
  EXPECT_EQ(child.WaitForEnd(), 0);
}

TEST(NoticeSignals, AProgramThatHandlesOrBlocksTheSignalKeepsIt) {
  ChildProcess own(kChild, "own handler");
  EXPECT_TRUE(own.Hears("mine"));
  ChildProcess blocked(kChild, "blocked");
  EXPECT_TRUE(blocked.Hears("waited for 15"));
}

TEST(NoticeSignals, WithoutSubscriptionsTheSignalEndsTheProcessAsEver) {
  ChildProcess child(kChild, "default again");
  EXPECT_FALSE(child.Hears("alive"));
  const int status = child.WaitForEnd();
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGTERM);
}

TEST(NoticeSignals, AForkedChildIsEndedByItsOwnSignalAndItsParentIsNotTold) {
  ChildProcess child(kChild, "forks");
  EXPECT_TRUE(child.Hears("forked ended by 15"));
  EXPECT_FALSE(child.Hears("noticed"));
  EXPECT_EQ(child.WaitForEnd(), 0);
}

// What happens when a test's child blocks for ever.
TEST(ChildProcess, OneThatDoesNotEndIsKilledAndDescribed) {
  ChildProcess child(kChild, "twice");
  ASSERT_TRUE(child.Hears("ready"));
  child.set_patience(absl::Milliseconds(20));
  EXPECT_NONFATAL_FAILURE(EXPECT_TRUE(WIFSIGNALED(child.WaitForEnd())), "\nready\n");
}

TEST(NoticeSignals, UnderALauncherTheSignalOfTheKeeperCounts) {
  ChildProcess child(kChild, "launched by parent");
  ASSERT_TRUE(child.Hears("ready"));
  kill(child.pid(), SIGTERM);
  EXPECT_TRUE(child.Hears("noticed"));
}

TEST(NoticeSignals, AnOrderThatTheKeeperRepeatsIsOneAndItsSecondOneEndsTheProcess) {
  ChildProcess child(kChild, "launched by itself");
  EXPECT_TRUE(child.Hears("lives"));
  EXPECT_FALSE(child.Hears("lives on"));
  EXPECT_TRUE(WIFSIGNALED(child.WaitForEnd()));
}

TEST(NoticeSignals, UnderALauncherASignalOfSomebodyElseIsToldAndItsSecondOneEndsTheProcess) {
  ChildProcess child(kChild, "launched by init");
  ASSERT_TRUE(child.Hears("ready"));
  kill(child.pid(), SIGTERM);
  std::string told;
  EXPECT_TRUE(child.Hears("told ", &told));
  EXPECT_EQ(told, "notice=given signal=15, waits");
  EXPECT_TRUE(WIFSIGNALED(child.WaitForEnd()));
}

}  // namespace
}  // namespace millrace
