// The master of a task: the sessions of its clients.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "millrace/base/mutex.h"
#include "millrace/cluster/master/master_session.h"
#include "millrace/cluster/watch/liveness.h"
#include "millrace/cluster/worker/worker.h"

namespace millrace {

struct MasterOptions {
  std::shared_ptr<Worker> worker = nullptr;  // the worker of the same task
  TimerQueue* timers = TimerQueue::Real();
  LivenessOptions liveness = {};
  // The configuration of sessions that do not give one.
  pb::ConfigProto default_config = {};
  // How long CreateSession waits for missing tasks, unless the client sets a limit.
  absl::Duration missing_task_timeout = absl::Minutes(10);
  // The source of session handles and step ids; must be thread-safe. If null, the system's random numbers.
  std::function<uint64_t()> random = nullptr;
  LeaseOptions lease = {};
  // Whether a session may bring a ClusterDef with addresses that are not in the worker's cluster.
  bool client_clusters = true;
};

// Starts no threads. Thread-safe. Held by shared_ptr. Every `done` is called once, on any thread, possibly before the
// call returns.
class Master : public LivenessClient, public LeaseClient, public std::enable_shared_from_this<Master> {
 public:
  template <typename T>
  using Done = absl::AnyInvocable<void(StatusOr<T>)>;
  using DoneStatus = absl::AnyInvocable<void(Status)>;

  static std::shared_ptr<Master> Make(MasterOptions options);

  // Waits until every task of the cluster that the session's device filters select has answered, and logs those that
  // have not.
  void CreateSession(pb::CreateSessionRequest request, const CallControl& control,
                     Done<pb::CreateSessionResponse> done);
  // ABORTED if the session is unknown: the task was restarted, or the session was closed or reset.
  StatusOr<std::shared_ptr<MasterSession>> Find(const std::string& handle) const;
  void CloseSession(const std::string& handle, DoneStatus done);
  // Clears containers on all tasks and closes all sessions.
  void Reset(pb::ResetRequest request, const CallControl& control, DoneStatus done);
  // The devices of a session, or of the whole cluster if the handle is empty.
  void ListDevices(const std::string& handle, const CallControl& control, Done<pb::ListDevicesResponse> done);

  // Ends all sessions with `why`; later requests fail with it.
  void Shutdown(const Status& why);

  std::vector<std::shared_ptr<MasterSession>> sessions() const;
  const std::shared_ptr<Worker>& worker() const { return options_.worker; }

  bool ListAwaited(std::vector<Awaited>* peers) override;
  void OnPeerLost(const Awaited& peer, const Status& why) override;
  std::vector<LeasedSession> ListLeased() override;
  void Expire(const std::string& handle, const Status& why) override;
  // Called when `call` has created the session: registers its caller in the session's lease.
  void Lease(const std::string& handle, const net::IncomingCall& call);

 private:
  class SessionCreation;
  explicit Master(MasterOptions options);
  Status Add(std::shared_ptr<MasterSession> session);
  // Sorted by handle, so that simulations are deterministic.
  std::vector<std::shared_ptr<MasterSession>> Ordered() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Removes the session from the list; null if it is not there.
  std::shared_ptr<MasterSession> Take(const std::string& handle);

  const MasterOptions options_;
  std::shared_ptr<LivenessMonitor> liveness_;
  std::shared_ptr<LeaseMonitor> leases_;
  const std::shared_ptr<EndedSteps> ended_steps_ = std::make_shared<EndedSteps>();
  mutable Mutex mu_;
  Status going_down_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<std::string, std::shared_ptr<MasterSession>> sessions_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace
