// What a client needs to talk to a master about one session: calls that wait, and an end to all of them.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "millrace/base/cancellation.h"
#include "millrace/base/mutex.h"
#include "millrace/net/transport.h"

namespace millrace {

struct CallLimits {
  absl::Duration timeout = absl::InfiniteDuration();
  // May be null. Outlives the call.
  CancellationManager* cancellation = nullptr;
  // As net::CallOptions.
  bool every_step = false;
};

// Thread-safe. Shared by a session and what it gave out.
class MasterClient {
 public:
  // `first_request_id` begins the numbers that tell a master one request from another.
  MasterClient(std::shared_ptr<net::Channel> channel, uint64_t first_request_id)
      : channel_(std::move(channel)), next_request_id_(first_request_id) {}

  // Calls the method of MasterService and waits. Errors as the server gave them; CANCELLED once Shut has begun.
  StatusOr<net::Bytes> Call(const char* method, net::Bytes request, const CallLimits& limits = {});
  template <typename Response>
  StatusOr<Response> Call(const char* method, const google::protobuf::MessageLite& request, const CallLimits& limits = {}) {
    MR_ASSIGN_OR_RETURN(const net::Bytes answer, Call(method, net::Serialize(request), limits));
    StatusOr<Response> response{absl::in_place};
    MR_RETURN_IF_ERROR(net::Parse(answer, &*response));
    return response;
  }
  // Does not wait, and nobody hears of the answer. Nothing once Shut has begun.
  void Post(const char* method, const google::protobuf::MessageLite& request);

  // Refuses further calls, makes the one given (unless `method` is null), then cancels those that are still out and waits for them.
  // The second time does nothing.
  Status Shut(const char* method, const google::protobuf::MessageLite& request, const CallLimits& limits);

  // The session's, empty while there is none.
  std::string session_handle() const;
  void set_session_handle(std::string handle);
  int64_t NextRequestId() { return static_cast<int64_t>(next_request_id_.fetch_add(1, std::memory_order_relaxed)); }
  const std::string& address() const { return channel_->address(); }

 private:
  // Counts the call as one that is out.
  Status Begin();
  void End();
  // Ends when it is answered, cancelled by either, or out of time.
  StatusOr<net::Bytes> CallAndWait(const char* method, net::Bytes request, const CallLimits& limits, CancellationManager* also);

  const std::shared_ptr<net::Channel> channel_;
  std::atomic<uint64_t> next_request_id_;
  CancellationManager shutting_;
  mutable Mutex mu_;
  CondVar ended_;
  std::string session_handle_ ABSL_GUARDED_BY(mu_);
  bool shut_ ABSL_GUARDED_BY(mu_) = false;
  int calls_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace millrace
