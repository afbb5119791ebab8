// Accepts connections for a gRPC server.
//
// gRPC 1.51 stops accepting for good when accept fails once for want of descriptors, and says nothing. So this process
// accepts by itself, and hands the sockets on through the interface behind grpc::ServerBuilder's
// ExternalConnectionAcceptor: a port named "external:...", and a channel argument of that name by which gRPC returns
// the object that takes sockets.
#pragma once

#include <grpc/grpc.h>

#include <vector>

#include "millrace/base/fd.h"
#include "millrace/base/thread_group.h"
#include "millrace/net/admission.h"
#include "millrace/net/tcp_sockets.h"

namespace grpc_core {

// gRPC's own; its layout is part of the library's binary interface.
class TcpServerFdHandler {
 public:
  virtual ~TcpServerFdHandler() = default;
  // Takes ownership of `fd`, a connected socket.
  virtual void Handle(int listener_fd, int fd, grpc_byte_buffer* pending_read) = 0;
};

}  // namespace grpc_core

namespace millrace::net {

// The name of the port and of the channel argument.
inline constexpr char kExternalPort[] = "external:millrace";

class GrpcAcceptor {
 public:
  // `handler` is the server's, which has started. `admission` must outlive this object. An error if there are no
  // descriptors or threads for it.
  static StatusOr<std::unique_ptr<GrpcAcceptor>> Start(TcpListeners listeners, Admission* admission,
                                                       grpc_core::TcpServerFdHandler* handler);
  // Closes the listening sockets; `handler` is not used after this. Call it before the server shuts down.
  ~GrpcAcceptor();

 private:
  GrpcAcceptor(TcpListeners listeners, Admission* admission, grpc_core::TcpServerFdHandler* handler, Fd stop);
  void Work();
  // Accepts what is pending. Returns false if the system has no resources, so that it must be tried again later.
  bool AcceptPending(int listening);

  const TcpListeners listeners_;
  Admission* const admission_;
  grpc_core::TcpServerFdHandler* const handler_;
  const Fd stop_;
  std::unique_ptr<ThreadGroup> thread_;
};

}  // namespace millrace::net
