// One caller's wait for a program to be compiled and registered with its tasks, bounded by the caller's limits.
#pragma once

#include <atomic>
#include <memory>
#include <utility>

#include "millrace/base/timer.h"
#include "millrace/cluster/master/master_program.h"
#include "millrace/cluster/step/let_go.h"
#include "millrace/cluster/worker/worker_interface.h"

namespace millrace {

// Ends once: with the program, by the caller's cancellation or limit, or with the session. Thread-safe. Held by
// shared_ptr.
class ProgramWait : public std::enable_shared_from_this<ProgramWait> {
 public:
  using Result = StatusOr<std::shared_ptr<const MasterProgram>>;
  using Done = absl::AnyInvocable<void(Result)>;

  explicit ProgramWait(Done done) : done_(std::move(done)) {}

  // Call it before anybody else may call End. `closing` belongs to the session and must outlive this object.
  void Start(const CallControl& control, CancellationManager* closing, TimerQueue* timers, absl::Duration limit) {
    owner_ = control.owner;
    Watch(control.cancellation, &caller_, Cancelled("the client gave up on the step"));
    Watch(closing, &closing_, absl::OkStatus());
    if (limit == absl::InfiniteDuration()) return;
    timers->Schedule(limit, [weak = weak_from_this(), limit] {
      if (auto self = weak.lock()) {
        self->End(DeadlineExceeded("the step did not end within ", absl::FormatDuration(limit),
                                   "; its parts were not registered with all tasks yet"));
      }
    });
  }

  bool ended() const { return ended_.load(); }

  void End(Result result) {
    if (ended_.exchange(true)) return;
    if (caller_.manager != nullptr) LetGo(caller_.manager, caller_.token);
    if (closing_.manager != nullptr) LetGo(closing_.manager, closing_.token);
    Done done = std::move(done_);
    done(std::move(result));
  }

 private:
  struct Watched {
    CancellationManager* manager = nullptr;
    CancellationManager::Token token = 0;
  };

  // Ends the wait when `manager` is cancelled: with `why` or, if that is OK, with the manager's status.
  void Watch(CancellationManager* manager, Watched* watched, const Status& why) {
    if (manager == nullptr) return;
    *watched = {manager, manager->NewToken()};
    const bool registered = manager->Register(watched->token, [weak = weak_from_this(), manager, why] {
      if (auto self = weak.lock()) self->End(why.ok() ? manager->status() : why);
    });
    if (registered) return;
    watched->manager = nullptr;
    End(why.ok() ? manager->status() : why);
  }

  Done done_;
  std::atomic<bool> ended_{false};
  std::shared_ptr<void> owner_;
  Watched caller_, closing_;
};

}  // namespace millrace
