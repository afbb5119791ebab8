#include "millrace/cluster/client/master_client.h"

#include <utility>

namespace millrace {
namespace {

constexpr char kService[] = "/tensorflow.MasterService/";

// Cancels a call when a manager is cancelled, for as long as this object lives.
class CancelWith {
 public:
  CancelWith(CancellationManager* manager, const RefPtr<net::OutgoingCall>& call) : manager_(manager) {
    if (manager_ == nullptr) return;
    token_ = manager_->NewToken();
    if (manager_->Register(token_, [call] { call->Cancel(); })) return;
    manager_ = nullptr;
    call->Cancel();
  }
  ~CancelWith() {
    if (manager_ != nullptr) manager_->Deregister(token_);
  }

 private:
  CancellationManager* manager_;
  CancellationManager::Token token_ = 0;
};

}  // namespace

Status MasterClient::Begin() {
  MutexLock lock(&mu_);
  if (shut_) return Cancelled("the session is closed");
  ++calls_;
  return absl::OkStatus();
}

void MasterClient::End() {
  MutexLock lock(&mu_);
  if (--calls_ > 0) return;
  ended_.SignalAll();
  if (shut_) idle_.Notify();
}

StatusOr<net::Bytes> MasterClient::CallAndWait(const char* method, net::Bytes request, const CallLimits& limits,
                                               CancellationManager* also) {
  struct Answer {
    Notification come;
    StatusOr<net::Bytes> bytes;
  };
  auto answer = std::make_shared<Answer>();
  const RefPtr<net::OutgoingCall> call = channel_->Call(absl::StrCat(kService, method), std::move(request),
                                                        {.timeout = limits.timeout, .every_step = limits.every_step},
                                                        [answer](StatusOr<net::Bytes> bytes) {
                                                          answer->bytes = std::move(bytes);
                                                          answer->come.Notify();
                                                        });
  {
    const CancelWith first(limits.cancellation, call);
    const CancelWith second(also, call);
    wait_ == nullptr ? answer->come.Wait() : wait_(&answer->come);
  }
  if (answer->bytes.status().code() == absl::StatusCode::kCancelled) {
    // Returns the reason given by whoever cancelled.
    for (CancellationManager* manager : {limits.cancellation, also}) {
      if (manager != nullptr && manager->IsCancelled()) return manager->status();
    }
  }
  return std::move(answer->bytes);
}

StatusOr<net::Bytes> MasterClient::Call(const char* method, net::Bytes request, const CallLimits& limits) {
  MR_RETURN_IF_ERROR(Begin());
  StatusOr<net::Bytes> answer = CallAndWait(method, std::move(request), limits, &shutting_);
  End();
  return answer;
}

void MasterClient::Post(const char* method, const google::protobuf::MessageLite& request) {
  if (!Begin().ok()) return;
  channel_->Call(absl::StrCat(kService, method), net::Serialize(request), {}, [](const StatusOr<net::Bytes>&) {});
  End();
}

Status MasterClient::Shut(const char* method, const google::protobuf::MessageLite& request, const CallLimits& limits) {
  {
    MutexLock lock(&mu_);
    if (std::exchange(shut_, true)) return absl::OkStatus();
  }
  Status status;
  if (method != nullptr) status = CallAndWait(method, net::Serialize(request), limits, nullptr).status();
  shutting_.StartCancel(Cancelled("the step was cancelled: the session was closed while it ran"));
  if (wait_ != nullptr) {
    {
      MutexLock lock(&mu_);
      if (calls_ == 0) idle_.Notify();
    }
    wait_(&idle_);
  }
  MutexLock lock(&mu_);
  while (calls_ > 0) ended_.Wait(&mu_);
  return status;
}

std::string MasterClient::session_handle() const {
  MutexLock lock(&mu_);
  return session_handle_;
}

void MasterClient::set_session_handle(std::string handle) {
  MutexLock lock(&mu_);
  session_handle_ = std::move(handle);
}

}  // namespace millrace
