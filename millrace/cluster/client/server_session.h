// A session at a server in this process, which calls its master directly.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "millrace/base/mutex.h"
#include "millrace/cluster/client/local_servers.h"
#include "millrace/cluster/master/master.h"
#include "millrace/session/base_session.h"

namespace millrace {

// Does not keep the master alive: calls return UNAVAILABLE once it is gone. The session is created at the master
// lazily, when its graph is not empty or it is first used. Otherwise the contract is that of Session.
class ServerSession : public BaseSession {
 public:
  ServerSession(std::weak_ptr<Master> master, const SessionOptions& options);
  // Closes.
  ~ServerSession() override;

  StatusOr<std::vector<DeviceInfo>> ListDeviceInfo() override;
  Status Close() override;

  // For callables: the master's session, created if there is none.
  StatusOr<std::shared_ptr<MasterSession>> Find();
  // With `may_repeat`, the step may be run repeatedly, as for Callable::Repeat.
  Status RunProgram(MasterSession& session, std::shared_ptr<const MasterProgram> program, std::vector<Tensor> feeds,
                    const RunOptions& options, std::vector<Tensor>* results, RunMetadata* metadata, bool may_repeat);

 private:
  Status Add(pb::GraphDef fresh) override;
  Status RunStep(CallableSpec spec, std::vector<Tensor> feeds, const RunOptions& options, std::vector<Tensor>* results,
                 RunMetadata* metadata) override;
  StatusOr<std::unique_ptr<Callable>> Compile(CallableSpec spec) override;
  StatusOr<std::string> SetUpPartial(CallableSpec spec) override;
  Status RunPartial(const std::string& handle, std::vector<Feed> feeds, std::vector<std::string> fetches,
                    std::vector<Tensor>* results) override;

  StatusOr<std::shared_ptr<Master>> LockMaster() const;
  // Empty while the master has no session; CANCELLED after Close.
  StatusOr<std::string> Handle();

  const std::weak_ptr<Master> master_;
  int64_t version_ = 0;  // the graph's version; accessed only within a turn (BaseSession::InTurn)
  Mutex mu_;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  std::string handle_ ABSL_GUARDED_BY(mu_);
};

// The entry under which sessions in this process find the server.
LocalServer MakeLocalServer(const std::shared_ptr<Master>& master);

}  // namespace millrace
