// A step that a master has compiled for a client.
#pragma once

#include <memory>
#include <vector>

#include "millrace/cluster/master_client.h"
#include "millrace/session/session.h"

namespace millrace {

class RemoteCallable : public Callable {
 public:
  // Runs are the session's; it may be closed and gone when this is only let go of.
  RemoteCallable(Session* session, std::shared_ptr<MasterClient> master, CallableSpec spec, int64_t handle,
                 absl::Duration operation_timeout);
  // Tells the master, without waiting.
  ~RemoteCallable() override;

  Status Run(absl::Span<const Tensor> feeds, std::vector<Tensor>* results, const RunOptions& options,
             RunMetadata* metadata) override;

 private:
  Session* const session_;
  const std::shared_ptr<MasterClient> master_;
  const CallableSpec spec_;
  const int64_t handle_;
  const absl::Duration operation_timeout_;
  const std::string session_handle_;
};

}  // namespace millrace
