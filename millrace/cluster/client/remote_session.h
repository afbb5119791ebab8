// A session at a remote master, which `Session::Create({.target = "grpc://host:port"})` returns.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "millrace/base/timer.h"
#include "millrace/cluster/client/master_client.h"
#include "millrace/net/transport.h"
#include "millrace/session/base_session.h"

namespace millrace {

struct RemoteSessionOptions {
  // Must outlive the sessions.
  net::Transport* transport = nullptr;
  // Must outlive the sessions.
  TimerQueue* timers = TimerQueue::Real();
  // The first of the numbers by which a master distinguishes requests; random if several clients share a master.
  uint64_t first_request_id = 1;
  // How calls wait for their answers. Null blocks the calling thread; a simulation runs its network meanwhile.
  MasterClient::Waiter wait = nullptr;
};

// The session is created at the server lazily, when its graph is not empty or it is first used. Errors come from the
// server or from the transport, whose UNAVAILABLE names the address. Otherwise the contract is that of Session.
class RemoteSession : public BaseSession {
 public:
  // INVALID_ARGUMENT for a target that is not "grpc://host:port".
  static StatusOr<std::unique_ptr<RemoteSession>> Create(const SessionOptions& options,
                                                         const RemoteSessionOptions& remote);
  // Closes.
  ~RemoteSession() override;

  StatusOr<std::vector<DeviceInfo>> ListDeviceInfo() override;
  // Returns the server's error, if any; the session is closed in any case.
  Status Close() override;

  // The time-out and cancellation of a run; for callables.
  CallLimits Limits(const RunOptions& options) const;

  // Clears the given containers (or all if none is given) of the server and of the tasks that match
  // `options.device_filters`. Ends all sessions of that server.
  static Status Reset(const SessionOptions& options, const std::vector<std::string>& containers,
                      const RemoteSessionOptions& remote);

 private:
  RemoteSession(const SessionOptions& options, std::shared_ptr<MasterClient> master);

  // The first nodes create the session at the server (CreateSession); later ones extend it.
  Status Add(pb::GraphDef fresh) override;
  Status RunStep(CallableSpec spec, std::vector<Tensor> feeds, const RunOptions& options, std::vector<Tensor>* results,
                 RunMetadata* metadata) override;
  // Each RunCallable sends only the tensors of the feeds. A run with a trace uses RunStep with names instead.
  StatusOr<std::unique_ptr<Callable>> Compile(CallableSpec spec) override;
  StatusOr<std::string> SetUpPartial(CallableSpec spec) override;
  Status RunPartial(const std::string& handle, std::vector<Feed> feeds, std::vector<std::string> fetches,
                    std::vector<Tensor>* results) override;

  // Creates the session at the server if there is none.
  StatusOr<std::string> Handle();

  const std::shared_ptr<MasterClient> master_;
  int64_t graph_version_ = 0;  // accessed only within a turn (BaseSession::InTurn)
};

// RemoteSession::Reset for programs that do not choose a transport: uses FindLocalServer, or else gRPC.
Status ResetServer(const SessionOptions& options, const std::vector<std::string>& containers = {});

}  // namespace millrace
