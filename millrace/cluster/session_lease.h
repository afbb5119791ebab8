// Sessions whose clients went away without closing them.
//
// A session lives as long as somebody can come back to it. Clients that crash, and masters that die, never say goodbye; their
// connections do. A session all of whose callers' connections are gone, and that runs no step, is closed after a time of grace.
#pragma once

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

// Who has called a session. Thread-safe. One that only this process uses has no callers and does not end by itself.
class SessionLease {
 public:
  void Touch(const net::IncomingCall& call);
  // The last caller; empty: none.
  std::string client() const;

 private:
  friend class LeaseMonitor;
  mutable Mutex mu_;
  std::vector<std::string> peers_ ABSL_GUARDED_BY(mu_);  // the last one first, few
  bool touched_ ABSL_GUARDED_BY(mu_) = false;            // since the monitor looked
  // What the monitor found.
  absl::Time active_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  absl::Time gone_since_ ABSL_GUARDED_BY(mu_) = absl::InfiniteFuture();
};

struct LeasedSession {
  std::string handle;
  std::shared_ptr<SessionLease> lease;
  bool idle = false;  // no step of a client that waits for it
};

// Who has sessions: a master or a worker. Thread-safe.
class LeaseClient {
 public:
  virtual ~LeaseClient() = default;
  virtual std::vector<LeasedSession> ListLeased() = 0;
  virtual void Expire(const std::string& handle, const Status& why) = 0;
};

struct LeaseOptions {
  std::string task = {};  // for messages
  // How long after the connection's end. InfiniteDuration: sessions stay.
  absl::Duration grace = absl::Seconds(30);
  // gRPC itself drops a connection that carried no call for half an hour, though the client is there and will come back: where the
  // connection ended after a silence of `long_silence`, the session has `long_grace`.
  absl::Duration long_silence = absl::Minutes(15);
  absl::Duration long_grace = absl::Hours(12);
  std::shared_ptr<net::ConnectionTable> connections = nullptr;
  TimerQueue* timers = TimerQueue::Real();
  Clock* clock = Clock::Real();
  Scheduler* scheduler = Scheduler::Inline();  // where sessions are looked at and closed
};

// Looks now and then while there are sessions that callers may have left. Thread-safe.
class LeaseMonitor : public std::enable_shared_from_this<LeaseMonitor> {
 public:
  static std::shared_ptr<LeaseMonitor> Make(LeaseOptions options, std::weak_ptr<LeaseClient> client);

  // A caller has made a session.
  void Poke();
  // No look begins after this returns.
  void Stop();

 private:
  LeaseMonitor(LeaseOptions options, std::weak_ptr<LeaseClient> client) : options_(std::move(options)), client_(std::move(client)) {}
  void Schedule() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Tick();
  // How long all callers of the session have been gone, when that is too long; else zero.
  absl::Duration GoneTooLong(SessionLease& lease, absl::Span<const net::ConnectionTable::State> callers, absl::Time now) const;

  const LeaseOptions options_;
  const std::weak_ptr<LeaseClient> client_;
  Mutex mu_;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  bool ticking_ ABSL_GUARDED_BY(mu_) = false;
  TimerQueue::Id timer_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace millrace
