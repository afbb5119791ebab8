// Accepts connections for a gRPC server.
//
// gRPC 1.51 stops accepting for good when accept fails once for want of descriptors, and says nothing. So this process
// accepts by itself, and hands the sockets on through the interface behind grpc::ServerBuilder's
// ExternalConnectionAcceptor: a port named "external:...", and a channel argument of that name by which gRPC returns
// the object that takes sockets.
#pragma once

#include <grpc/grpc.h>

#include <vector>

#include "absl/time/time.h"
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
  // `handler` is the server's, which has started. `admission` must outlive this object. With `tls`, a client that
  // begins without it (TensorFlow's, for example) is disconnected, and the log says what to do; gRPC would say nothing.
  // An error if there are no descriptors or threads for it.
  static StatusOr<std::unique_ptr<GrpcAcceptor>> Start(TcpListeners listeners, Admission* admission,
                                                       grpc_core::TcpServerFdHandler* handler, bool tls);
  // Closes the listening sockets; `handler` is not used after this. Call it before the server shuts down.
  ~GrpcAcceptor();

 private:
  // A connection of which nothing has been received.
  struct Silent {
    Fd fd;
    int listening;
    absl::Time give_up;
  };

  GrpcAcceptor(TcpListeners listeners, Admission* admission, grpc_core::TcpServerFdHandler* handler, bool tls, Fd stop);
  void Work();
  // Hands on, or closes, those that are not silent any more.
  void LookAtSilent();
  // Accepts what is pending. Returns false if the system has no resources, so that it must be tried again later.
  bool AcceptPending(int listening);

  const TcpListeners listeners_;
  Admission* const admission_;
  grpc_core::TcpServerFdHandler* const handler_;
  const bool tls_;
  const Fd stop_;
  // Used by the thread only.
  std::vector<Silent> silent_;
  absl::Time warned_ = absl::InfinitePast();
  std::unique_ptr<ThreadGroup> thread_;
};

}  // namespace millrace::net
