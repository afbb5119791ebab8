// Threads that stop together: the first that fails stops the others, and its error is reported once.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"
#include "millrace/base/clock.h"
#include "millrace/base/status.h"

namespace millrace {

struct CoordinatorOptions {
  // Codes that are not errors when a thread ends with them after a stop was requested, because stopping closes queues
  // and cancels steps. OUT_OF_RANGE, the end of the input, requests a stop like any error but is never reported as one.
  std::vector<absl::StatusCode> clean_stop_codes = {absl::StatusCode::kOutOfRange, absl::StatusCode::kCancelled,
                                                    absl::StatusCode::kAborted};
  // Measures periods, timeouts and grace periods.
  Clock* clock = Clock::Real();
  // How a simulation starts threads, and how the coordinator waits on them; given together, or both null: threads of
  // this machine. Returns false if there can be no further thread.
  std::function<bool(absl::AnyInvocable<void()> body)> start_thread = nullptr;
  std::function<void(absl::Duration)> pause = nullptr;
};

// Thread-safe. Its own threads may call everything except Join and the destructor. Whatever the threads use must
// outlive it.
class Coordinator {
 public:
  explicit Coordinator(CoordinatorOptions options = {});
  // Requests a stop and waits for the threads without a limit, naming those it still waits for in the log. An error
  // that Join has not returned is logged.
  ~Coordinator();
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  // Wakes WaitForStop and makes ShouldStop true. Join returns the first error given, here or by a thread. An error
  // after a clean stop counts too, unless its code is in clean_stop_codes.
  void RequestStop(Status why = absl::OkStatus());
  bool ShouldStop() const;
  Clock* clock() const;
  // Returns true if a stop was requested before the timeout.
  bool WaitForStop(absl::Duration timeout = absl::InfiniteDuration()) const;
  // Makes a stopped coordinator usable again. FAILED_PRECONDITION names the threads that still run.
  Status ClearStop();

  // Runs `body` on a new thread. `name` identifies the thread in errors. An error that the body returns requests a stop
  // and is reported with the name as its prefix. FAILED_PRECONDITION after a stop was requested, RESOURCE_EXHAUSTED if
  // the system cannot create a thread.
  Status Start(std::string name, absl::AnyInvocable<Status()> body);
  // Calls `body` immediately and then every `period` until the stop, or back to back if `period` is zero. A call that
  // takes longer than the period delays the next one; missed calls are skipped.
  Status Loop(std::string name, absl::Duration period, absl::AnyInvocable<Status()> body);
  // Registers a callback, such as closing a queue or cancelling a step. It is called once, when a stop is requested, or
  // immediately if one was requested already. It must not block. ClearStop removes it.
  void OnStop(absl::AnyInvocable<void()> callback);

  // Waits until all threads have ended. Once a stop is requested they have `stop_grace_period` to do so; then Join
  // returns the first error or, if there is none, DEADLINE_EXCEEDED with the names of the threads that still run. Each
  // error is returned once: a second Join returns OK.
  Status Join(absl::Duration stop_grace_period = absl::Seconds(120));
  // The error that the next Join would return; OK if there is none.
  Status status() const;
  // The names of the threads that have not ended.
  std::vector<std::string> running() const;

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace millrace
