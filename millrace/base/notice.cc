#include "millrace/base/notice.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "millrace/base/launcher_pipe.h"

namespace millrace {
namespace {

// For the signal handler, which may use nothing else. Set before the handler is installed.
std::atomic<int> notice_pipe{-1};           // its write end
std::atomic<pid_t> owner{0};                // the process that it belongs to
std::atomic<pid_t> keeper{0};               // 0: there is no launcher
std::atomic<int> from_keeper{0};            // how many
std::atomic<int64_t> first_from_others{0};  // when, in milliseconds; 0: not yet
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<pid_t>::is_always_lock_free &&
              std::atomic<int64_t>::is_always_lock_free);

// A scheduler signals every process of a job, and some in two ways: what comes within this time is one notice.
constexpr int64_t kOneNoticeMs = 2000;

std::atomic<bool> ended_by_notice{false};

// If nobody has said it: what schedulers usually leave.
constexpr absl::Duration kUsualGrace = absl::Seconds(30);

// What the handler writes, in one piece.
struct SignalWord {
  char signal;
  bool ordered;
};

enum class SignalTurn { kFirst, kSame, kSecond };

SignalTurn TurnOfSignal(bool of_keeper, bool repeated) {
  if (of_keeper && from_keeper.fetch_add(1) == 0) return SignalTurn::kFirst;
  if (of_keeper) return repeated ? SignalTurn::kSame : SignalTurn::kSecond;
  timespec time = {};
  clock_gettime(CLOCK_MONOTONIC, &time);
  const int64_t now = int64_t{time.tv_sec} * 1000 + time.tv_nsec / 1000000 + 1;
  int64_t first = 0;
  if (first_from_others.compare_exchange_strong(first, now)) return SignalTurn::kFirst;
  return now - first < kOneNoticeMs ? SignalTurn::kSame : SignalTurn::kSecond;
}

extern "C" void MillraceOnNoticeSignal(int number, siginfo_t* info, void*) {
  const int saved = errno;
  const pid_t launcher = keeper.load();
  const bool of_keeper = launcher != 0 && info->si_pid == launcher, ordered = of_keeper || launcher == 0;
  // A child that was forked has this handler and the pipe, but is a process of its own.
  const bool ends = getpid() != owner.load();
  // The keeper queues the signal if its first one may have become one with a pending signal of somebody else.
  const SignalTurn turn = ends ? SignalTurn::kSecond : TurnOfSignal(of_keeper, info->si_code == SI_QUEUE);
  if (turn == SignalTurn::kSecond) {
    // The second one ends the process. It is blocked here, and so is delivered when this function returns.
    signal(number, SIG_DFL);
    raise(number);
  } else if (turn == SignalTurn::kFirst) {
    const SignalWord word = {static_cast<char>(number), ordered};
    // The pipe is never full: at most two words are written to it.
    [[maybe_unused]] const ssize_t written = write(notice_pipe.load(), &word, sizeof(word));
  }
  errno = saved;
}

absl::Duration GraceOfEnvironment() {
  const char* text = std::getenv(kGraceVariable);
  double seconds;
  const bool said = text != nullptr && absl::SimpleAtod(text, &seconds) && seconds >= 0 && seconds < 1e6;
  return said ? absl::Seconds(seconds) : kUsualGrace;
}

std::vector<int> NoticeSignals() {
  std::vector<int> signals = {SIGTERM};
  const char* name = std::getenv(kNoticeSignalVariable);
  if (const int also = NoticeSignalNumber(name == nullptr ? "" : name); also != 0 && also != SIGTERM)
    signals.push_back(also);
  return signals;
}

// Gives the process's notice when the handler has written a word. One for the whole life of the process.
void ReadSignals(int pipe) {
  SignalWord word;
  while (read(pipe, &word, sizeof(word)) != sizeof(word)) {
  }
  const absl::Duration grace = GraceOfEnvironment();
  if (!word.ordered) {
    TellLauncher(absl::StrCat("notice=given signal=", static_cast<int>(word.signal)), LauncherLine::kMatters);
    // The launcher decides when it is this task's turn. One that does not react in all that time is not waited for.
    pollfd order = {pipe, POLLIN, 0};
    while (poll(&order, 1, static_cast<int>(absl::ToInt64Milliseconds(grace))) < 0 && errno == EINTR) {
    }
  }
  NoticeBoard::OfProcess()->Give({.signal = word.signal, .grace = grace});
}

void ExitWithNoticeCode() {
  if (!ended_by_notice.load()) return;
  std::fflush(nullptr);
  _exit(kNoticeExitCode);
}

// Everything that is done once.
bool StartSignalThread() {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) return false;
  const char* pid = std::getenv(kKeeperVariable);
  int number;
  if (pid != nullptr && absl::SimpleAtoi(pid, &number) && HasLauncher()) keeper = number;
  try {
    std::thread(ReadSignals, fds[0]).detach();
  } catch (const std::system_error&) {
    return false;  // signals keep their default effect
  }
  notice_pipe = fds[1];
  owner = getpid();
  std::atexit(ExitWithNoticeCode);
  return true;
}

void InstallHandlers() {
  static const bool started = StartSignalThread();
  if (!started) return;
  sigset_t blocked;
  pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
  for (const int number : NoticeSignals()) {
    struct sigaction action = {};
    // A program that waits for the signal itself has blocked it.
    if (sigaction(number, nullptr, &action) != 0 || sigismember(&blocked, number) == 1) continue;
    if ((action.sa_flags & SA_SIGINFO) != 0 || action.sa_handler != SIG_DFL) continue;
    action = {};
    action.sa_sigaction = MillraceOnNoticeSignal;
    action.sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK;
    sigaction(number, &action, nullptr);
  }
}

void RemoveHandlers() {
  for (const int number : NoticeSignals()) {
    struct sigaction action = {};
    if (sigaction(number, nullptr, &action) == 0 && (action.sa_flags & SA_SIGINFO) != 0 &&
        action.sa_sigaction == MillraceOnNoticeSignal)
      signal(number, SIG_DFL);
  }
}

}  // namespace

std::string Notice::SignalName() const {
  const char* name = sigabbrev_np(signal);
  return name != nullptr ? absl::StrCat("SIG", name) : absl::StrCat("signal ", signal);
}

int NoticeSignalNumber(absl::string_view name) {
  absl::ConsumePrefix(&name, "SIG");
  for (const int number : {SIGTERM, SIGUSR1, SIGUSR2, SIGHUP}) {
    if (name == sigabbrev_np(number)) return number;
  }
  return 0;
}

struct NoticeSubscription::Entry {
  Entry(NoticeBoard* board, absl::AnyInvocable<void(const Notice&)> react) : board(board), react(std::move(react)) {}

  // Called once, with the board's lock held.
  void Start(const Notice& notice) {
    thread = std::thread([this, notice] { react(notice); });
  }

  NoticeBoard* const board;
  absl::AnyInvocable<void(const Notice&)> react;
  std::thread thread;
};

NoticeSubscription& NoticeSubscription::operator=(NoticeSubscription&& other) noexcept {
  if (this == &other) return *this;
  Reset();
  entry_ = std::move(other.entry_);
  return *this;
}

void NoticeSubscription::Reset() {
  if (entry_ == nullptr) return;
  const std::shared_ptr<Entry> entry = std::exchange(entry_, nullptr);
  entry->board->Remove(entry.get());
  if (!entry->thread.joinable()) return;
  if (entry->thread.get_id() == std::this_thread::get_id()) {
    entry->thread.detach();
    static auto* const ended = new std::vector<std::shared_ptr<Entry>>;  // the reaction still runs
    static auto* const mu = new Mutex;
    MutexLock lock(mu);
    ended->push_back(entry);
  } else {
    entry->thread.join();
  }
}

NoticeBoard* NoticeBoard::OfProcess() {
  static auto* const board = new NoticeBoard(/*of_process=*/true);
  return board;
}

NoticeSubscription NoticeBoard::Subscribe(absl::AnyInvocable<void(const Notice&)> react) {
  auto entry = std::make_shared<NoticeSubscription::Entry>(this, std::move(react));
  MutexLock lock(&mu_);
  if (entries_.empty() && of_process_) InstallHandlers();
  entries_.push_back(entry);
  if (given_) entry->Start(*given_);
  return NoticeSubscription(std::move(entry));
}

void NoticeBoard::Remove(const NoticeSubscription::Entry* entry) {
  MutexLock lock(&mu_);
  std::erase_if(entries_, [&](const auto& each) { return each.get() == entry; });
  if (entries_.empty() && of_process_) RemoveHandlers();
}

void NoticeBoard::Give(const Notice& notice) {
  MutexLock lock(&mu_);
  if (given_) return;
  given_ = notice;
  for (const auto& entry : entries_) entry->Start(notice);
}

std::optional<Notice> NoticeBoard::given() const {
  MutexLock lock(&mu_);
  return given_;
}

void NoticeBoard::SetExitCode() {
  if (of_process_) ended_by_notice = true;
}

Notice WaitForNotice() {
  Notification come;
  Notice given;
  const NoticeSubscription subscription = OnNotice([&](const Notice& notice) {
    given = notice;
    come.Notify();
  });
  come.Wait();
  return given;
}

}  // namespace millrace
