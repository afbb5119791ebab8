// A callable whose step a master has compiled.
#pragma once

#include <memory>
#include <vector>

#include "millrace/cluster/client/master_client.h"
#include "millrace/session/session.h"

namespace millrace {

class RemoteSession;

class RemoteCallable : public Callable {
 public:
  // The session must outlive all runs, but may be destroyed before this object.
  RemoteCallable(RemoteSession* session, std::shared_ptr<MasterClient> master, CallableSpec spec, int64_t handle);
  // Releases the callable at the master, without blocking.
  ~RemoteCallable() override;

  Status Run(absl::Span<const Tensor> feeds, std::vector<Tensor>* results, const RunOptions& options,
             RunMetadata* metadata) override;

 private:
  RemoteSession* const session_;
  const std::shared_ptr<MasterClient> master_;
  const CallableSpec spec_;
  const int64_t handle_;
  const std::string session_handle_;
};

}  // namespace millrace
