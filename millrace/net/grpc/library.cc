#include "millrace/net/grpc/library.h"

#include <grpc/grpc.h>
#include <grpc/support/log.h>

#include <cstdlib>

#include "absl/synchronization/mutex.h"
#include "millrace/base/log.h"

namespace millrace::net {
namespace {

// What gRPC tells its own developers. Errors that matter reach the caller as a Status.
void Log(gpr_log_func_args* args) { MR_LOG(Debug, "gRPC: ", args->message); }

}  // namespace

void InitGrpc() {
  static const bool initialised = [] {
    // Who sets GRPC_VERBOSITY wants to see it as gRPC prints it.
    if (std::getenv("GRPC_VERBOSITY") == nullptr) gpr_set_log_function(Log);
#if defined(NDEBUG)
    // gRPC's locks are Abseil's, which as Debian builds them look for cycles whenever one is taken: a twelfth of a
    // small call.
    absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
#endif
    grpc_init();
    return true;
  }();
  static_cast<void>(initialised);
}

}  // namespace millrace::net
