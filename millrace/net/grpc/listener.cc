#include "millrace/net/grpc/listener.h"

#include <utility>

#include "millrace/base/clock.h"
#include "millrace/net/address.h"
#include "millrace/net/grpc/channel_args.h"
#include "millrace/net/grpc/credentials.h"
#include "millrace/net/grpc/incoming_call.h"

namespace millrace::net {
namespace {

// Calls of a method that gRPC may hand over before it must queue them.
constexpr int kRequestedPerMethod = 4;
// A call whose method is not registered.
constexpr int kOtherMethod = -1;
// How long clients may take to read the last answers and hang up by themselves.
constexpr absl::Duration kGrace = absl::Milliseconds(300);

// gRPC copies the pointer to where it stores the object that takes sockets.
const grpc_arg_pointer_vtable kPlainPointer = {
    .copy = [](void* pointer) { return pointer; },
    .destroy = [](void*) {},
    .cmp = [](void* a, void* b) { return a < b   ? -1
                                         : a > b ? 1
                                                 : 0; },
};

}  // namespace

grpc_server* GrpcListener::NewServer(const GrpcTransportOptions& options) {
  ChannelArgs args = ServerArgs(options);
  args.SetPointer(kExternalPort, &takes_sockets_, &kPlainPointer);
  return grpc_server_create(args.get(), nullptr);
}

GrpcListener::GrpcListener(const GrpcTransportOptions& options, CompletionQueue* queue, Admission* admission,
                           Service* service)
    : queue_(queue),
      admission_(admission),
      service_(service),
      roles_(options.tls == nullptr ? nullptr : std::make_unique<CertificateRoles>()),
      server_(NewServer(options)) {
  grpc_server_register_completion_queue(server_, queue_->get(), nullptr);
  for (const std::string& method : service_->methods()) {
    methods_.push_back(
        grpc_server_register_method(server_, method.c_str(), nullptr, GRPC_SRM_PAYLOAD_READ_INITIAL_BYTE_BUFFER, 0));
  }
}

GrpcListener::~GrpcListener() {
  Stop();
  grpc_server_destroy(server_);
}

StatusOr<std::unique_ptr<Listener>> GrpcListener::Start(const std::string& address, const GrpcTransportOptions& options,
                                                        CompletionQueue* queue, Admission* admission,
                                                        Service* service) {
  MR_ASSIGN_OR_RETURN(const HostPort wanted, ParseHostPort(address));
  MR_ASSIGN_OR_RETURN(TcpListeners sockets, ListenTcp(wanted));
  std::unique_ptr<GrpcListener> listener(new GrpcListener(options, queue, admission, service));
  listener->port_ = sockets.port;
  // Returns 0 also if it succeeds.
  grpc_server_add_http2_port(listener->server_, kExternalPort, NewServerCredentials(options.tls.get()).get());
  if (listener->takes_sockets_ == nullptr) {
    return Unavailable(
        "cannot listen at ", JoinHostPort(wanted.host, wanted.port),
        options.tls == nullptr
            ? ""
            : ": the TLS certificate, key or authority is not valid, or the key is not the certificate's");
  }
  grpc_server_start(listener->server_);
  listener->RequestCall(kOtherMethod);
  for (int method = 0; method < listener->methods_.size(); ++method) {
    for (int i = 0; i < kRequestedPerMethod; ++i) listener->RequestCall(method);
  }
  MR_ASSIGN_OR_RETURN(listener->acceptor_, GrpcAcceptor::Start(std::move(sockets), admission, listener->takes_sockets_,
                                                               options.tls != nullptr));
  return listener;
}

void GrpcListener::RequestCall(int method) {
  {
    MutexLock lock(&mu_);
    if (stopping_) return;
    ++requested_;
  }
  (new GrpcIncomingCall(this, method))->Request(server_, method == kOtherMethod ? nullptr : methods_[method]);
}

void GrpcListener::OnArrival(GrpcIncomingCall* call, bool arrived) {
  bool serve = false;
  {
    MutexLock lock(&mu_);
    serve = !stopping_;
    --requested_;
    if (arrived) {
      calls_.insert(call);
      ++unanswered_;
    } else {
      changed_.SignalAll();
    }
  }
  if (!arrived) {
    call->Unref();
    return;
  }
  if (!serve) return call->Refuse(Unavailable("the server is stopping"));
  if (admission_->has_unsettled()) admission_->Settle(call->peer());
  RequestCall(call->method());
  if (call->method() == kOtherMethod)
    return call->Refuse(Unimplemented("this server has no method ", call->MethodName()));
  call->Serve(service_);
}

void GrpcListener::OnAnswer() {
  MutexLock lock(&mu_);
  --unanswered_;
  if (stopping_) changed_.SignalAll();
}

void GrpcListener::OnEnd(GrpcIncomingCall* call) {
  {
    MutexLock lock(&mu_);
    calls_.erase(call);
    if (stopping_) changed_.SignalAll();
  }
  call->Unref();
}

void GrpcListener::OnShutdown(bool ok) {
  MutexLock lock(&mu_);
  shut_down_ = true;
  changed_.SignalAll();
}

void GrpcListener::Stop() {
  std::vector<RefPtr<GrpcIncomingCall>> calls;
  {
    MutexLock lock(&mu_);
    if (stopping_) {
      while (!stopped_) changed_.Wait(&mu_);
      return;
    }
    stopping_ = true;
    for (GrpcIncomingCall* call : calls_) calls.push_back(ShareRef(call));
  }
  acceptor_.reset();
  grpc_server_shutdown_and_notify(server_, queue_->get(), shutdown_.Tag());
  for (const auto& call : calls) call->cancellation()->StartCancel(Cancelled("the server is stopping"));
  calls.clear();
  const auto over = [this]()
                        ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return shut_down_ && calls_.empty() && requested_ == 0; };
  mu_.Lock();
  while (unanswered_ > 0) changed_.Wait(&mu_);
  const absl::Time patience = Clock::Real()->Now() + kGrace;
  while (!over() && Clock::Real()->Now() < patience) changed_.WaitFor(&mu_, patience - Clock::Real()->Now());
  if (!over()) {
    mu_.Unlock();
    grpc_server_cancel_all_calls(server_);
    mu_.Lock();
    while (!over()) changed_.Wait(&mu_);
  }
  stopped_ = true;
  changed_.SignalAll();
  mu_.Unlock();
}

}  // namespace millrace::net
