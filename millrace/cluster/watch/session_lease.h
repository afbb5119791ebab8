// Closes sessions whose clients disappeared without closing them.
//
// Clients that crash and masters that die do not close their sessions, but their connections end. A session without
// running steps whose callers' connections have all ended is closed after a grace period.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "millrace/base/clock.h"
#include "millrace/base/mutex.h"
#include "millrace/base/thread_pool.h"
#include "millrace/base/timer.h"
#include "millrace/net/connection_table.h"
#include "millrace/net/transport.h"

namespace millrace {

// The callers of a session. Thread-safe. A session that only this process uses has no callers and does not expire.
class SessionLease {
 public:
  void Touch(const net::IncomingCall& call);
  // The last caller; empty if there was none.
  std::string client() const;

 private:
  friend class LeaseMonitor;
  mutable Mutex mu_;
  std::vector<std::string> peers_ ABSL_GUARDED_BY(mu_);  // the most recent first, bounded
  // Not guarded: most calls come over the same connection as the one before, and take no lock.
  std::atomic<bool> touched_{false};     // since the monitor's last check
  std::atomic<uint64_t> connection_{0};  // that of peers_[0]; 0: unknown
  // The monitor's findings.
  absl::Time active_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  absl::Time gone_since_ ABSL_GUARDED_BY(mu_) = absl::InfiniteFuture();
};

struct LeasedSession {
  std::string handle;
  std::shared_ptr<SessionLease> lease;
  bool idle = false;  // no client waits for a step
};

// Implemented by the owner of sessions: a master or a worker. Thread-safe.
class LeaseClient {
 public:
  virtual ~LeaseClient() = default;
  virtual std::vector<LeasedSession> ListLeased() = 0;
  virtual void Expire(const std::string& handle, const Status& why) = 0;
};

struct LeaseOptions {
  std::string task = {};  // for messages
  // How long after the end of the connection a session is closed; if infinite, never.
  absl::Duration grace = absl::Seconds(30);
  // gRPC closes a connection that carried no call for half an hour, although the client is alive and will come back. If
  // the connection ended after being idle for `long_silence`, the session has `long_grace`.
  absl::Duration long_silence = absl::Minutes(15);
  absl::Duration long_grace = absl::Hours(12);
  std::shared_ptr<net::ConnectionTable> connections = nullptr;
  TimerQueue* timers = TimerQueue::Real();
  Clock* clock = Clock::Real();
  Scheduler* scheduler = Scheduler::Inline();  // where sessions are checked and closed
};

// Checks periodically while there are sessions that may expire. Thread-safe.
class LeaseMonitor : public std::enable_shared_from_this<LeaseMonitor> {
 public:
  static std::shared_ptr<LeaseMonitor> Make(LeaseOptions options, std::weak_ptr<LeaseClient> client);

  // Call it when a caller has created a session.
  void Poke();
  // No check starts after this returns.
  void Stop();
  // Whether there is a session whose client may come back to it: a caller's connection exists or may exist, a step is
  // running, or it never had a caller.
  bool AnyAttended() const;

 private:
  LeaseMonitor(LeaseOptions options, std::weak_ptr<LeaseClient> client)
      : options_(std::move(options)), client_(std::move(client)) {}
  void Schedule() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Tick();
  // How long all callers of the session have been gone, if that is too long; otherwise zero.
  absl::Duration GoneTooLong(SessionLease& lease, absl::Span<const net::ConnectionTable::State> callers,
                             absl::Time now) const;

  const LeaseOptions options_;
  const std::weak_ptr<LeaseClient> client_;
  Mutex mu_;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  bool ticking_ ABSL_GUARDED_BY(mu_) = false;
  TimerQueue::Id timer_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace millrace
