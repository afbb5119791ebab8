// A client's connection to a master for one session: blocking calls, and a way to end all of them.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "millrace/base/cancellation.h"
#include "millrace/base/mutex.h"
#include "millrace/net/transport.h"

namespace millrace {

struct CallLimits {
  absl::Duration timeout = absl::InfiniteDuration();
  // May be null. Must outlive the call.
  CancellationManager* cancellation = nullptr;
  // See net::CallOptions.
  bool every_step = false;
};

// Thread-safe. Shared by a session and its callables.
class MasterClient {
 public:
  // Blocks until the notification has come.
  using Waiter = std::function<void(Notification* come)>;

  // `first_request_id` is the first of the numbers by which a master distinguishes requests. If `wait` is null, calls
  // and Shut block their threads.
  MasterClient(std::shared_ptr<net::Channel> channel, uint64_t first_request_id, Waiter wait = nullptr)
      : channel_(std::move(channel)), next_request_id_(first_request_id), wait_(std::move(wait)) {}

  // Calls a method of MasterService and blocks until it ends. Returns the server's error unchanged; CANCELLED once Shut
  // has begun.
  StatusOr<net::Bytes> Call(const char* method, net::Bytes request, const CallLimits& limits = {});
  template <typename Response>
  StatusOr<Response> Call(const char* method, const google::protobuf::MessageLite& request,
                          const CallLimits& limits = {}) {
    MR_ASSIGN_OR_RETURN(const net::Bytes answer, Call(method, net::Serialize(request), limits));
    StatusOr<Response> response{absl::in_place};
    MR_RETURN_IF_ERROR(net::Parse(answer, &*response));
    return response;
  }
  // Non-blocking; the answer is ignored. Does nothing once Shut has begun.
  void Post(const char* method, const google::protobuf::MessageLite& request);

  // Refuses further calls, makes the given call (unless `method` is null), then cancels the calls in flight and waits
  // for them. A second call does nothing.
  Status Shut(const char* method, const google::protobuf::MessageLite& request, const CallLimits& limits);

  // The session's handle; empty while there is no session.
  std::string session_handle() const;
  void set_session_handle(std::string handle);
  int64_t NextRequestId() { return static_cast<int64_t>(next_request_id_.fetch_add(1, std::memory_order_relaxed)); }
  const std::string& address() const { return channel_->address(); }

 private:
  // Counts a call in flight.
  Status Begin();
  void End();
  // Blocks until the call is answered, cancelled through either manager, or out of time.
  StatusOr<net::Bytes> CallAndWait(const char* method, net::Bytes request, const CallLimits& limits,
                                   CancellationManager* also);

  const std::shared_ptr<net::Channel> channel_;
  std::atomic<uint64_t> next_request_id_;
  const Waiter wait_;
  CancellationManager shutting_;
  mutable Mutex mu_;
  CondVar ended_;
  Notification idle_;  // shut, and no call is in flight; for `wait_`
  std::string session_handle_ ABSL_GUARDED_BY(mu_);
  bool shut_ ABSL_GUARDED_BY(mu_) = false;
  int calls_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace millrace
