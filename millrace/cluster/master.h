// What a task does for clients: their sessions.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "millrace/base/mutex.h"
#include "millrace/cluster/liveness.h"
#include "millrace/cluster/master_session.h"
#include "millrace/cluster/worker.h"

namespace millrace {

struct MasterOptions {
  std::shared_ptr<Worker> worker = nullptr;  // of the same task
  TimerQueue* timers = TimerQueue::Real();
  LivenessOptions liveness = {};
  // Options of sessions that do not say otherwise.
  pb::ConfigProto default_config = {};
  // How long CreateSession waits for tasks that are not there, where the client sets no limit.
  absl::Duration missing_task_timeout = absl::Minutes(10);
  // Where handles of sessions and numbers of steps come from. Null: from the machine. Thread-safe.
  std::function<uint64_t()> random = nullptr;
  LeaseOptions lease = {};
};

// Starts no threads. Thread-safe; behind a shared_ptr. Every `done` is called once, on any thread, perhaps before the call returns.
class Master : public LivenessClient, public LeaseClient, public std::enable_shared_from_this<Master> {
 public:
  template <typename T>
  using Done = absl::AnyInvocable<void(StatusOr<T>)>;
  using DoneStatus = absl::AnyInvocable<void(Status)>;

  static std::shared_ptr<Master> Make(MasterOptions options);

  // Waits until every task of the cluster that the session's device filters leave has answered; says on the way which have not.
  void CreateSession(pb::CreateSessionRequest request, const CallControl& control, Done<pb::CreateSessionResponse> done);
  // ABORTED for a session that is not known: the task was restarted, or the session was closed or reset.
  StatusOr<std::shared_ptr<MasterSession>> Find(const std::string& handle) const;
  void CloseSession(const std::string& handle, DoneStatus done);
  // Empties containers on all tasks and closes all sessions.
  void Reset(pb::ResetRequest request, const CallControl& control, DoneStatus done);
  // Of a session, or of the whole cluster when the handle is empty.
  void ListDevices(const std::string& handle, const CallControl& control, Done<pb::ListDevicesResponse> done);

  // All sessions end with `why`, and so do later ones.
  void Shutdown(const Status& why);

  std::vector<std::shared_ptr<MasterSession>> sessions() const;
  const std::shared_ptr<Worker>& worker() const { return options_.worker; }

  bool ListAwaited(std::vector<Awaited>* peers) override;
  void OnPeerLost(const Awaited& peer, const Status& why) override;
  std::vector<LeasedSession> ListLeased() override;
  void Expire(const std::string& handle, const Status& why) override;
  // The session was made by this call.
  void Lease(const std::string& handle, const net::IncomingCall& call);

 private:
  class SessionCreation;
  explicit Master(MasterOptions options);
  Status Add(std::shared_ptr<MasterSession> session);
  // By handle, so that a simulation gives the same events each time.
  std::vector<std::shared_ptr<MasterSession>> Ordered() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Out of the list; null when it is not there.
  std::shared_ptr<MasterSession> Take(const std::string& handle);

  const MasterOptions options_;
  std::shared_ptr<LivenessMonitor> liveness_;
  std::shared_ptr<LeaseMonitor> leases_;
  mutable Mutex mu_;
  Status going_down_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<std::string, std::shared_ptr<MasterSession>> sessions_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace
