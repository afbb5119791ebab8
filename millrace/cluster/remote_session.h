// A session at the master of a server, over a channel: what `Session::Create({.target = "grpc://host:port"})` gives.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "millrace/base/timer.h"
#include "millrace/cluster/master_client.h"
#include "millrace/net/transport.h"
#include "millrace/session/session.h"

namespace millrace {

struct RemoteSessionOptions {
  // Outlives the sessions.
  net::Transport* transport = nullptr;
  // Outlives the sessions.
  TimerQueue* timers = TimerQueue::Real();
  // Begins the numbers of requests, by which a master tells them apart; random where several clients talk to one.
  uint64_t first_request_id = 1;
};

// The server hears of the session when there is something in its graph, or something is asked of it. Errors are the server's own, and the
// transport's: UNAVAILABLE names the address. Otherwise as Session says.
class RemoteSession : public Session {
 public:
  // INVALID_ARGUMENT for a target that is no "grpc://host:port".
  static StatusOr<std::unique_ptr<RemoteSession>> Create(const SessionOptions& options, const RemoteSessionOptions& remote);
  // Closes.
  ~RemoteSession() override;

  using Session::Run;
  Status Extend(pb::GraphDef def) override;
  Status Extend(const Graph& graph) override;
  Status Run(const RunOptions& options, absl::Span<const Feed> feeds, absl::Span<const std::string> fetches,
             absl::Span<const std::string> targets, std::vector<Tensor>* results, RunMetadata* metadata) override;
  // Each RunCallable takes the tensors of the feeds only. With a trace, the step is run by names.
  StatusOr<std::unique_ptr<Callable>> MakeCallable(const CallableSpec& spec) override;
  StatusOr<std::string> PartialRunSetup(absl::Span<const std::string> feeds, absl::Span<const std::string> fetches,
                                        absl::Span<const std::string> targets) override;
  Status PartialRun(const std::string& handle, absl::Span<const Feed> feeds, absl::Span<const std::string> fetches,
                    std::vector<Tensor>* results) override;
  // Has none.
  std::vector<Device*> ListDevices() const override { return {}; }
  StatusOr<std::vector<DeviceInfo>> ListDeviceInfo() override;
  // The server's error, if it gave one; the session is closed all the same.
  Status Close() override;

  // Clears the containers of the server and of the tasks that `options.device_filters` leave, all containers when none is named. Ends
  // all sessions of that server's.
  static Status Reset(const SessionOptions& options, const std::vector<std::string>& containers, const RemoteSessionOptions& remote);

 private:
  RemoteSession(const SessionOptions& options, std::shared_ptr<MasterClient> master);

  // Sends what is new of a graph, as CreateSession or ExtendSession. One caller at a time, since the versions follow each other.
  Status Send(pb::GraphDef fresh);
  // Makes the session at the server if there is none.
  StatusOr<std::string> Handle();
  // Waits for its turn with the graph, which is the caller's until EndTurn.
  void BeginTurn();
  void EndTurn();

  CallLimits Limits(const RunOptions& options) const;

  const SessionOptions options_;
  const std::shared_ptr<MasterClient> master_;

  Mutex mu_;
  CondVar turn_ended_;
  bool in_turn_ ABSL_GUARDED_BY(mu_) = false;
  // The caller's whose turn it is.
  int64_t graph_version_ = 0;
  absl::flat_hash_set<std::string> nodes_;
  absl::flat_hash_set<std::string> functions_;
};

// By way of the session factory, for a program that does not choose its transport: FindLocalServer first, then gRPC.
Status ResetServer(const SessionOptions& options, const std::vector<std::string>& containers = {});

}  // namespace millrace
