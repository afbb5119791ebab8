// Notices of preemption: the process will be ended soon, and has a grace period to bring its work to safety.
//
// A notice is SIGTERM, or the signal that MILLRACE_NOTICE_SIGNAL names (`--notice_signal` of `millrace launch`).
// MonitoredTrainingSession reacts to it: the step in hand ends, and the chief saves. For programs of one's own:
//
//   NoticeSubscription saving = OnNotice([&](const Notice& notice) { stop = true; });
//
// Handlers are installed when something first asks for notices, and removed when nothing does any more; never for a
// signal that the program handles, ignores or blocks itself. Such a program calls NoticeBoard::OfProcess()->Give().
//
// Under `millrace launch`, a signal to any task is a notice to the whole job: a program that gets one from somebody
// else tells the launcher, and reacts when the launcher says so, because the order matters (the chief saves when the
// others have stopped, the ps end last). A second signal ends the process at once; what comes within two seconds is one
// signal, because schedulers send some twice, but for those of the launcher. A child that is forked does not react: its
// first signal ends it, and is not its parent's.
#pragma once

#include <csignal>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "millrace/base/mutex.h"

namespace millrace {

struct Notice {
  int signal = SIGTERM;
  // How long until the process is killed, as far as is known.
  absl::Duration grace = absl::Seconds(5);
  // "SIGTERM"
  std::string SignalName() const;
};

// The exit code of a program that a notice has ended: 128 + SIGTERM, whatever signal it was.
inline constexpr int kNoticeExitCode = 143;
// Seconds; set by the launcher (--grace), or by whoever starts the program.
inline constexpr char kGraceVariable[] = "MILLRACE_GRACE";
inline constexpr char kNoticeSignalVariable[] = "MILLRACE_NOTICE_SIGNAL";
// The process whose signals are the launcher's own.
inline constexpr char kKeeperVariable[] = "MILLRACE_KEEPER";

// The number of a signal that may serve as a notice: "USR1", "SIGUSR1", "USR2", "TERM", "HUP"; 0 for anything else.
int NoticeSignalNumber(absl::string_view name);

// Ends a reaction's registration. Waits for the reaction if it runs, unless it is destroyed by it.
class NoticeSubscription {
 public:
  NoticeSubscription() = default;
  NoticeSubscription(NoticeSubscription&&) = default;
  NoticeSubscription& operator=(NoticeSubscription&& other) noexcept;
  ~NoticeSubscription() { Reset(); }
  void Reset();
  bool active() const { return entry_ != nullptr; }

 private:
  friend class NoticeBoard;
  struct Entry;
  explicit NoticeSubscription(std::shared_ptr<Entry> entry) : entry_(std::move(entry)) {}
  std::shared_ptr<Entry> entry_;
};

// Where a notice is given and who reacts to it. Thread-safe. Must outlive its subscriptions.
class NoticeBoard {
 public:
  // The process's own, on which its signals appear.
  static NoticeBoard* OfProcess();
  // One without signals, for tests.
  NoticeBoard() = default;
  NoticeBoard(const NoticeBoard&) = delete;
  NoticeBoard& operator=(const NoticeBoard&) = delete;

  // Calls `react` once, on a thread of its own, when a notice is given; immediately if there was one.
  [[nodiscard]] NoticeSubscription Subscribe(absl::AnyInvocable<void(const Notice&)> react);
  // The first notice counts; later ones are ignored.
  void Give(const Notice& notice);
  std::optional<Notice> given() const;
  // A notice has ended this program's work: it exits with kNoticeExitCode, whatever main returns, so that whoever
  // started it knows that it has not finished. Without effect on boards other than the process's own.
  void SetExitCode();

 private:
  friend class NoticeSubscription;
  explicit NoticeBoard(bool of_process) : of_process_(of_process) {}
  void Remove(const NoticeSubscription::Entry* entry);

  const bool of_process_ = false;
  mutable Mutex mu_;
  std::optional<Notice> given_ ABSL_GUARDED_BY(mu_);
  std::vector<std::shared_ptr<NoticeSubscription::Entry>> entries_ ABSL_GUARDED_BY(mu_);
};

// Subscribes to the process's notices.
[[nodiscard]] inline NoticeSubscription OnNotice(absl::AnyInvocable<void(const Notice&)> react) {
  return NoticeBoard::OfProcess()->Subscribe(std::move(react));
}

// Blocks until this process gets a notice: for a task that only serves, such as a ps.
Notice WaitForNotice();

}  // namespace millrace
