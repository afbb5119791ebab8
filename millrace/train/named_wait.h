// A wait of a training program's own: for a server, for the chief, for a step. It has a name that people, the launcher and the hang report see.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "millrace/base/clock.h"
#include "millrace/base/status.h"
#include "millrace/runtime/wait_registry.h"

namespace millrace {

// How a program waits; injected, so that tests wait on a clock of theirs.
struct WaitSettings {
  Clock* clock = Clock::Real();
  // Returns after that time, or earlier when there is no more use in waiting. Null: by the machine's clock.
  std::function<void(absl::Duration)> pause = nullptr;
  // Asked before each pause: an error ends the wait with it. May be null.
  std::function<Status()> give_up = nullptr;
  // Between two looks: the pause grows with the time waited, up to this one.
  absl::Duration most_between_looks = absl::Seconds(1);
};

// For the thread that waits.
class NamedWait {
 public:
  // `who` is what waits, for people; `registry` lists the wait and may be null.
  NamedWait(std::string who, WaitSettings settings, absl::Duration max_wait, std::shared_ptr<WaitRegistry> registry);
  // The wait is over.
  ~NamedWait();
  NamedWait(const NamedWait&) = delete;

  // Pauses before the next look for `what` ("worker/0 (the chief) to initialise w, b"). It is logged after a second and then less and less often, and told to the
  // launcher when it is new. DEADLINE_EXCEEDED names it when the time is over.
  Status Again(const std::string& what);

  absl::Duration waited() const { return settings_.clock->Now() - begun_; }
  absl::Duration left() const { return max_wait_ - waited(); }

 private:
  const std::string who_;
  const WaitSettings settings_;
  const absl::Duration max_wait_;
  const std::shared_ptr<WaitRegistry> registry_;
  const absl::Time begun_;
  std::string what_;
  uint64_t wait_ = 0;
  absl::Duration next_log_ = absl::Seconds(1);
};

// The registry of the server in this process that sessions with this target go to, where its status lists what it waits for; null when there is none.
std::shared_ptr<WaitRegistry> WaitsOfServer(const std::string& target);

}  // namespace millrace
