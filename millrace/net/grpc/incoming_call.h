// One unary call at a server.
#pragma once

#include <grpc/grpc.h>

#include <atomic>
#include <memory>
#include <string>

#include "millrace/base/ref.h"
#include "millrace/net/grpc/byte_buffer.h"
#include "millrace/net/grpc/listener.h"

namespace millrace::net {

// Created before the call arrives, because gRPC needs a place to put it. Referenced by pending gRPC operations and by
// the service.
class GrpcIncomingCall final : public IncomingCall, public RefCounted {
 public:
  GrpcIncomingCall(GrpcListener* listener, int method);

  // Requests the next call of a method, or of any unregistered method if null.
  void Request(grpc_server* server, void* method);
  // Called when it has arrived: serves it, and watches whether the caller goes away.
  void Serve(Service* service);
  // Called when it has arrived, instead of Serve.
  void Refuse(Status why);
  int method() const { return method_; }
  // The method's name, for a call of an unregistered method.
  std::string MethodName() const;

  Bytes& request() override { return request_; }
  absl::Time deadline() const override;
  std::string peer() const override;
  bool from_client() const override;
  CancellationManager* cancellation() override { return &cancellation_; }
  void RunsLong() override { queue_->HandlerRunsLong(); }
  void Reply(StatusOr<Bytes> answer) override;
  bool answered() const override { return answered_; }

 private:
  ~GrpcIncomingCall() override;
  void OnArrival(bool ok);
  void OnSent(bool ok);
  void OnClosed(bool ok);
  void WatchClose();
  // Called for each of the things that must happen before the listener may forget the call (see parts_).
  void EndPart();

  GrpcListener* const listener_;
  CompletionQueue* const queue_;
  const int method_;
  grpc_call* call_ = nullptr;
  grpc_byte_buffer* received_ = nullptr;
  gpr_timespec deadline_{};
  grpc_metadata_array metadata_;
  grpc_call_details details_;  // for a call of an unregistered method
  Bytes request_;
  ByteBuffer answer_;
  int cancelled_ = 0;
  std::atomic<bool> answered_{false};
  std::atomic<int> parts_{3};  // OnCall has returned, the answer is sent, the call is closed
  CancellationManager cancellation_;
  MemberEvent<GrpcIncomingCall, &GrpcIncomingCall::OnArrival> arrival_{this};
  MemberEvent<GrpcIncomingCall, &GrpcIncomingCall::OnSent> sent_{this};
  MemberEvent<GrpcIncomingCall, &GrpcIncomingCall::OnClosed> closed_{this};
};

}  // namespace millrace::net
