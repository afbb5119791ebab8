// A Listener over gRPC.
#pragma once

#include <grpc/grpc.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "millrace/base/mutex.h"
#include "millrace/net/admission.h"
#include "millrace/net/grpc/acceptor.h"
#include "millrace/net/grpc/completion_queue.h"
#include "millrace/net/grpc/grpc_transport.h"
#include "millrace/net/tls/certificate_role.h"
#include "millrace/net/transport.h"

namespace millrace::net {

class GrpcIncomingCall;

class GrpcListener final : public Listener {
 public:
  // `admission` decides which connections are kept; it must outlive the listener.
  static StatusOr<std::unique_ptr<Listener>> Start(const std::string& address, const GrpcTransportOptions& options,
                                                   CompletionQueue* queue, Admission* admission, Service* service);
  ~GrpcListener() override;
  int port() const override { return port_; }
  void Stop() override;

  // Called by GrpcIncomingCall when a call has arrived, or, with false, when none will.
  void OnArrival(GrpcIncomingCall* call, bool arrived);
  void OnAnswer();
  // Called when the call is finished and its OnCall has returned.
  void OnEnd(GrpcIncomingCall* call);
  CompletionQueue* queue() const { return queue_; }
  // Null without TLS.
  CertificateRoles* roles() const { return roles_.get(); }

 private:
  GrpcListener(const GrpcTransportOptions& options, CompletionQueue* queue, Admission* admission, Service* service);
  grpc_server* NewServer(const GrpcTransportOptions& options);
  // Requests the next call of a method from gRPC.
  void RequestCall(int method);
  void OnShutdown(bool ok);

  CompletionQueue* const queue_;
  Admission* const admission_;
  Service* const service_;
  const std::unique_ptr<CertificateRoles> roles_;
  grpc_core::TcpServerFdHandler* takes_sockets_ = nullptr;  // set by gRPC when the port is added
  grpc_server* const server_;
  std::vector<void*> methods_;  // gRPC's handles
  int port_ = 0;
  std::unique_ptr<GrpcAcceptor> acceptor_;  // until Stop
  MemberEvent<GrpcListener, &GrpcListener::OnShutdown> shutdown_{this};

  Mutex mu_;
  CondVar changed_;
  int requested_ ABSL_GUARDED_BY(mu_) = 0;  // requested calls that have not arrived
  int unanswered_ ABSL_GUARDED_BY(mu_) = 0;
  absl::flat_hash_set<GrpcIncomingCall*> calls_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  bool shut_down_ ABSL_GUARDED_BY(mu_) = false;  // gRPC has closed the port and all connections
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace millrace::net
