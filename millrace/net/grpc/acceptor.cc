#include "millrace/net/grpc/acceptor.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "millrace/base/log.h"

namespace millrace::net {
namespace {

// How long to wait before accepting again when the system has no resources, in milliseconds.
constexpr int kAcceptAgain = 100;

}  // namespace

GrpcAcceptor::GrpcAcceptor(TcpListeners listeners, Admission* admission, grpc_core::TcpServerFdHandler* handler,
                           Fd stop)
    : listeners_(std::move(listeners)),
      admission_(admission),
      handler_(handler),
      stop_(std::move(stop)),
      thread_(std::make_unique<ThreadGroup>("grpc-accept")) {}

StatusOr<std::unique_ptr<GrpcAcceptor>> GrpcAcceptor::Start(TcpListeners listeners, Admission* admission,
                                                            grpc_core::TcpServerFdHandler* handler) {
  Fd stop(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!stop.ok()) return ResourceExhausted("there are no file descriptors to listen with: ", std::strerror(errno));
  std::unique_ptr<GrpcAcceptor> acceptor(new GrpcAcceptor(std::move(listeners), admission, handler, std::move(stop)));
  if (!acceptor->thread_->Start([self = acceptor.get()] { self->Work(); }))
    return ResourceExhausted("there are no threads to listen with");
  return acceptor;
}

GrpcAcceptor::~GrpcAcceptor() {
  const uint64_t one = 1;
  while (write(stop_.get(), &one, sizeof(one)) < 0 && errno == EINTR) {
  }
  thread_.reset();
}

void GrpcAcceptor::Work() {
  std::vector<pollfd> fds = {{stop_.get(), POLLIN, 0}};
  for (const Fd& socket : listeners_.sockets) fds.push_back({socket.get(), POLLIN, 0});
  for (bool again = false;;) {
    // Without resources the listening sockets would stay ready, so only the stop is polled for a while.
    const int ready = poll(fds.data(), again ? 1 : fds.size(), again ? kAcceptAgain : -1);
    if (ready < 0 && errno != EINTR) MR_LOG(Error, "poll: ", std::strerror(errno));
    if (fds[0].revents != 0) return;
    again = false;
    for (size_t i = 1; i < fds.size(); ++i) again |= !AcceptPending(fds[i].fd);
  }
}

bool GrpcAcceptor::AcceptPending(int listening) {
  for (;;) {
    Fd fd = admission_->Accept(listening);
    if (!fd.ok()) return !Admission::OutOfResources(errno);
    SetTcpOptions(fd.get());
    handler_->Handle(listening, fd.Release(), nullptr);
  }
}

}  // namespace millrace::net
