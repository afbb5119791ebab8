#include "millrace/cluster/watch/session_lease.h"

#include <algorithm>
#include <utility>

#include "millrace/base/log.h"

namespace millrace {
namespace {

// The maximum number of remembered callers per session; the one that was idle for longest is dropped.
constexpr size_t kCallers = 8;

}  // namespace

void SessionLease::Touch(const net::IncomingCall& call) {
  const uint64_t connection = call.connection();
  touched_.store(true, std::memory_order_relaxed);
  if (connection != 0 && connection == connection_.load(std::memory_order_relaxed)) return;
  std::string peer = call.peer();
  MutexLock lock(&mu_);
  connection_.store(connection, std::memory_order_relaxed);
  if (!peers_.empty() && peers_[0] == peer) return;
  std::erase(peers_, peer);
  peers_.insert(peers_.begin(), std::move(peer));
  if (peers_.size() > kCallers) peers_.pop_back();
}

std::string SessionLease::client() const {
  MutexLock lock(&mu_);
  return peers_.empty() ? "" : peers_[0];
}

std::shared_ptr<LeaseMonitor> LeaseMonitor::Make(LeaseOptions options, std::weak_ptr<LeaseClient> client) {
  return std::shared_ptr<LeaseMonitor>(new LeaseMonitor(std::move(options), std::move(client)));
}

void LeaseMonitor::Poke() {
  if (options_.connections == nullptr || options_.grace == absl::InfiniteDuration()) return;
  MutexLock lock(&mu_);
  if (!ticking_) Schedule();
}

void LeaseMonitor::Schedule() {
  ticking_ = !stopped_;
  if (stopped_) return;
  const absl::Duration interval = std::clamp(options_.grace / 4, absl::Milliseconds(20), absl::Seconds(10));
  timer_ = options_.timers->Schedule(interval, [weak = weak_from_this()] {
    const std::shared_ptr<LeaseMonitor> self = weak.lock();
    if (self == nullptr) return;
    Scheduler* scheduler = self->options_.scheduler;
    scheduler->Schedule([self] { self->Tick(); });
  });
}

void LeaseMonitor::Stop() {
  TimerQueue::Id timer = 0;
  {
    MutexLock lock(&mu_);
    stopped_ = true;
    timer = std::exchange(timer_, 0);
  }
  if (timer != 0) options_.timers->Cancel(timer);
}

void LeaseMonitor::Tick() {
  const std::shared_ptr<LeaseClient> client = client_.lock();
  if (client == nullptr) return;
  {
    // Reset before the check: a session that is created from now on schedules another one.
    MutexLock lock(&mu_);
    ticking_ = false;
  }
  const absl::Time now = options_.clock->Now();
  std::vector<LeasedSession> idle;
  std::vector<std::string> callers;  // of all sessions, concatenated
  std::vector<size_t> ends;          // the end of each session's callers
  bool more = false;
  for (LeasedSession& session : client->ListLeased()) {
    SessionLease& lease = *session.lease;
    MutexLock lock(&lease.mu_);
    if (lease.peers_.empty()) continue;
    more = true;
    if (lease.touched_.exchange(false) || !session.idle) {
      lease.active_ = now;
      lease.gone_since_ = absl::InfiniteFuture();
    }
    if (!session.idle) continue;
    callers.insert(callers.end(), lease.peers_.begin(), lease.peers_.end());
    ends.push_back(callers.size());
    idle.push_back(std::move(session));
  }
  if (!idle.empty()) {
    const std::vector<net::ConnectionTable::State> states = options_.connections->Look(callers);
    int closed = 0;
    std::string last;
    for (size_t i = 0, begin = 0; i < idle.size(); begin = ends[i++]) {
      const absl::Duration gone =
          GoneTooLong(*idle[i].lease, absl::MakeConstSpan(states).subspan(begin, ends[i] - begin), now);
      if (gone == absl::ZeroDuration()) continue;
      ++closed;
      const std::string normal = net::NormalPeer(callers[begin]);
      const std::string& who = normal.empty() ? callers[begin] : normal;
      last = absl::StrCat(closed == 1 ? " (" : ", the last ", idle[i].handle, " of ", who, closed == 1 ? ")" : "");
      client->Expire(idle[i].handle,
                     Aborted("the session was closed: the connection of its client ", who, " had ended"));
    }
    if (closed > 0) {
      MR_LOG(Info, options_.task, " has closed ", closed, closed == 1 ? " session" : " sessions",
             " whose clients' connections had ended", last);
    }
  }
  MutexLock lock(&mu_);
  if (more && !ticking_) Schedule();
}

bool LeaseMonitor::AnyAttended() const {
  const std::shared_ptr<LeaseClient> client = client_.lock();
  if (client == nullptr) return false;
  std::vector<std::string> callers;
  for (const LeasedSession& session : client->ListLeased()) {
    MutexLock lock(&session.lease->mu_);
    if (options_.connections == nullptr || !session.idle || session.lease->peers_.empty()) return true;
    callers.insert(callers.end(), session.lease->peers_.begin(), session.lease->peers_.end());
  }
  if (callers.empty()) return false;
  const std::vector<net::ConnectionTable::State> states = options_.connections->Look(callers);
  return std::any_of(states.begin(), states.end(),
                     [](auto state) { return state != net::ConnectionTable::State::kGone; });
}

absl::Duration LeaseMonitor::GoneTooLong(SessionLease& lease, absl::Span<const net::ConnectionTable::State> callers,
                                         absl::Time now) const {
  const bool gone = std::all_of(callers.begin(), callers.end(),
                                [](auto state) { return state == net::ConnectionTable::State::kGone; });
  MutexLock lock(&lease.mu_);
  // A call that came meanwhile is handled by the next check.
  if (!gone || lease.touched_) {
    lease.gone_since_ = absl::InfiniteFuture();
    return absl::ZeroDuration();
  }
  if (lease.gone_since_ == absl::InfiniteFuture()) lease.gone_since_ = now;
  const bool long_silent = lease.gone_since_ - lease.active_ >= options_.long_silence;
  const absl::Duration since = now - lease.gone_since_;
  const absl::Duration grace = long_silent ? std::max(options_.long_grace, options_.grace) : options_.grace;
  // At least a nanosecond, since zero means no.
  return since >= grace ? std::max(since, absl::Nanoseconds(1)) : absl::ZeroDuration();
}

}  // namespace millrace
