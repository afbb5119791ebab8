#include "millrace/train/named_wait.h"

#include <algorithm>
#include <utility>

#include "millrace/base/log.h"
#include "millrace/base/mutex.h"
#include "millrace/cluster/client/local_servers.h"
#include "millrace/runtime/wait_registry.h"
#include "millrace/train/progress.h"

namespace millrace {
namespace {

constexpr absl::Duration kFirstPause = absl::Milliseconds(20);
constexpr absl::Duration kMostBetweenLogs = absl::Seconds(30);

void PauseByMachine(absl::Duration time) { Notification().WaitFor(time); }

}  // namespace

NamedWait::NamedWait(std::string who, WaitSettings settings, absl::Duration max_wait,
                     std::shared_ptr<WaitRegistry> registry)
    : who_(std::move(who)),
      settings_(std::move(settings)),
      max_wait_(max_wait),
      registry_(std::move(registry)),
      begun_(settings_.clock->Now()) {}

NamedWait::~NamedWait() {
  if (wait_ != 0) registry_->End(wait_);
}

Status NamedWait::Again(const std::string& what, const std::string& peer) {
  if (settings_.give_up != nullptr) {
    if (const Status status = settings_.give_up(); !status.ok())
      return WithSuffix(status, absl::StrCat(" (while waiting for ", what, ")"));
  }
  const absl::Duration so_far = waited();
  if (so_far >= max_wait_) {
    return DeadlineExceeded(who_, " gave up after waiting ",
                            absl::FormatDuration(absl::Trunc(so_far, absl::Milliseconds(1))), " for ", what);
  }
  if (what != what_) {
    what_ = what;
    if (registry_ != nullptr) {
      if (wait_ != 0) registry_->End(wait_);
      const Wait::Kind kind = peer.empty() ? Wait::Kind::kOther : Wait::Kind::kPeer;
      wait_ = registry_->Begin({.node = "session", .what = what, .kind = kind, .peer = peer});
    }
    ReportProgress(TrainingProgress::WaitingFor(what));
  }
  if (so_far >= next_log_) {
    MR_LOG(Info, who_, " has waited ", absl::FormatDuration(absl::Trunc(so_far, absl::Seconds(1))), " for ", what);
    next_log_ = so_far + std::min(next_log_, kMostBetweenLogs);
  }
  // A tenth of the time so far: short waits are noticed quickly, long ones cost little.
  absl::Duration pause = std::clamp(so_far / 10, kFirstPause, std::max(kFirstPause, settings_.max_poll_interval));
  pause = std::min(pause, max_wait_ - so_far);
  if (settings_.pause != nullptr) {
    settings_.pause(pause);
  } else {
    PauseByMachine(pause);
  }
  return absl::OkStatus();
}

std::shared_ptr<WaitRegistry> WaitsOfServer(const std::string& target) {
  const std::shared_ptr<const LocalServer> server = FindLocalServer(target);
  return server == nullptr ? nullptr : server->waits;
}

}  // namespace millrace
