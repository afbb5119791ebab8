// Threads that stop together: the first that fails stops the others, and its error is reported once.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"
#include "millrace/base/clock.h"
#include "millrace/base/status.h"

namespace millrace {

struct CoordinatorOptions {
  // Codes with which a thread may end after a stop was asked for without that being an error: queues are closed and steps cancelled then.
  // OUT_OF_RANGE, the end of the input, stops the others like any error but is never one.
  std::vector<absl::StatusCode> clean_stop_codes = {absl::StatusCode::kOutOfRange, absl::StatusCode::kCancelled, absl::StatusCode::kAborted};
  // What periods, time-outs and grace are measured with.
  Clock* clock = Clock::Real();
};

// Thread-safe, and usable from its own threads but for Join and the destructor. Whatever the threads use outlives it.
class Coordinator {
 public:
  explicit Coordinator(CoordinatorOptions options = {});
  // Asks for a stop and waits for the threads, however long they take: those that keep it waiting are named in the log. An error that nobody asked
  // for is logged.
  ~Coordinator();
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  // Ends the waits of WaitForStop and makes ShouldStop true. The first error given, here or by a thread, is the one that Join returns; one that
  // comes after a clean stop counts too unless its code is of clean_stop_codes.
  void RequestStop(Status why = absl::OkStatus());
  bool ShouldStop() const;
  // True when a stop was asked for within that time.
  bool WaitForStop(absl::Duration timeout = absl::InfiniteDuration()) const;
  // Makes a stopped coordinator usable again. FAILED_PRECONDITION names threads that still run.
  Status ClearStop();

  // Runs `body` on a thread of its own, which has a name for the error of one that does not stop. A body's error requests the stop and is reported with
  // the thread's name before it. FAILED_PRECONDITION after a stop was asked for, RESOURCE_EXHAUSTED when the system has no more threads.
  Status Start(std::string name, absl::AnyInvocable<Status()> body);
  // Calls `body` every `period` until the stop; zero: at once again. The first call is at once; one that takes longer than the period delays the next, and
  // those that were missed are not made up for.
  Status Loop(std::string name, absl::Duration period, absl::AnyInvocable<Status()> body);
  // Called once when a stop is asked for, at once when it was already: closing a queue, cancelling a step. Must not block. Forgotten by ClearStop.
  void OnStop(absl::AnyInvocable<void()> callback);

  // Waits until all threads are done. From the moment at which a stop was asked for they have `grace`: then DEADLINE_EXCEEDED names those that are still running, unless there
  // is an error to report. Otherwise the first error, once: a second Join says OK.
  Status Join(absl::Duration grace = absl::Seconds(120));
  // The error so far, which Join has yet to report; OK when there is none.
  Status status() const;
  // The threads that have not ended, by name.
  std::vector<std::string> running() const;

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace millrace
