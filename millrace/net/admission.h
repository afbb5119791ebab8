// Which of the connections that arrive at a listener are kept.
//
// Strangers can open connections faster than a handshake tells them apart from tasks. A listener therefore keeps
// descriptors in reserve, limits what one address may hold, and closes what is beyond that at once, instead of leaving
// it in the kernel's queue until nobody can connect any more.
#pragma once

#include <atomic>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "millrace/base/clock.h"
#include "millrace/base/fd.h"
#include "millrace/base/mutex.h"
#include "millrace/base/status.h"
#include "millrace/net/transport.h"

namespace millrace::net {

struct AdmissionOptions {
  std::string what = {};  // what connections are made to, for the log: "the step lane"
  // The owner of a connection closes it if its handshake is not complete in this time.
  absl::Duration handshake_timeout = absl::Seconds(10);
  // At most this many connections whose handshake is not complete, from one address and in all; fewer where the process
  // may have few descriptors.
  int64_t unsettled_per_address = 1024;
  int64_t unsettled = 4096;
  Clock* clock = Clock::Real();
};

// Thread-safe. The connections belong to others: whether one is still open is found out by its descriptor's number and
// the cookie of the socket behind it, which is never reused.
class Admission {
 public:
  explicit Admission(AdmissionOptions options);

  // The next pending connection that may stay, after closing those before it that may not. An empty Fd, with errno set,
  // if no connection is pending or the system has no resources for one (OutOfResources); call it again later then.
  Fd Accept(int listening);
  static bool OutOfResources(int error);

  // The handshake of a connection is complete: its peer has made a call. Given by IncomingCall::peer, or by descriptor.
  void Settle(const std::string& peer);
  void SettleFd(int fd);
  // False if Settle has nothing to do; cheap.
  bool has_unsettled() const { return unsettled_.load(std::memory_order_relaxed) > 0; }

  // Adds its connections to a transport's.
  void AddTo(TransportStatus* status);

 private:
  struct Connection {
    int fd;
    std::string address;  // empty: a Unix socket's, with no limit of its own
    std::string peer;     // address and port
    absl::Time since;
    bool settled = false;
  };
  struct Counts {
    int64_t all = 0;
    int64_t unsettled = 0;
  };

  // OK, and remembers it; or the reason why it is closed.
  Status Admit(int fd);
  Status CheckLimits(const std::string& address, int64_t room) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Forgets the connections that are closed; those whose handshake would have timed out are settled.
  void Sweep(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void SettleAt(uint64_t cookie) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void MarkSettled(Connection* connection) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // There is no descriptor for a pending connection: takes it with the spare one and closes it. False if that fails.
  bool RefuseWithSpare(int listening);
  void Refused(const std::string& peer, const Status& why);

  const AdmissionOptions options_;
  Mutex mu_;
  Fd spare_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<uint64_t, Connection> connections_ ABSL_GUARDED_BY(mu_);  // by cookie
  absl::flat_hash_map<std::string, uint64_t> by_peer_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<std::string, Counts> by_address_ ABSL_GUARDED_BY(mu_);
  std::atomic<int64_t> unsettled_{0};  // written with the lock
  absl::Time swept_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  uint64_t refused_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t logged_ ABSL_GUARDED_BY(mu_) = 0;  // of refused_
  absl::Time logged_at_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  std::string last_refusal_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace::net
