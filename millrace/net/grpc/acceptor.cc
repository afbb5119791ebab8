#include "millrace/net/grpc/acceptor.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "millrace/base/clock.h"
#include "millrace/base/log.h"

namespace millrace::net {
namespace {

// How long to wait before accepting again when the system has no resources, in milliseconds.
constexpr int kAcceptAgain = 100;
// How long a connection may be silent before its first byte, and how often that is looked at.
constexpr absl::Duration kFirstByte = absl::Seconds(10);
constexpr int kLookAgain = 1000;
constexpr absl::Duration kBetweenWarnings = absl::Seconds(10);
// What an HTTP/2 client without TLS sends first; TLS begins with 0x16.
constexpr char kPlainStart = 'P';

}  // namespace

GrpcAcceptor::GrpcAcceptor(TcpListeners listeners, Admission* admission, grpc_core::TcpServerFdHandler* handler,
                           bool tls, Fd stop)
    : listeners_(std::move(listeners)),
      admission_(admission),
      handler_(handler),
      tls_(tls),
      stop_(std::move(stop)),
      thread_(std::make_unique<ThreadGroup>("grpc-accept")) {}

StatusOr<std::unique_ptr<GrpcAcceptor>> GrpcAcceptor::Start(TcpListeners listeners, Admission* admission,
                                                            grpc_core::TcpServerFdHandler* handler, bool tls) {
  Fd stop(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!stop.ok()) return ResourceExhausted("there are no file descriptors to listen with: ", std::strerror(errno));
  std::unique_ptr<GrpcAcceptor> acceptor(
      new GrpcAcceptor(std::move(listeners), admission, handler, tls, std::move(stop)));
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
  const size_t listening = 1 + listeners_.sockets.size();
  for (bool again = false;;) {
    std::vector<pollfd> fds = {{stop_.get(), POLLIN, 0}};
    for (const Fd& socket : listeners_.sockets) fds.push_back({socket.get(), POLLIN, 0});
    for (const Silent& silent : silent_) fds.push_back({silent.fd.get(), POLLIN, 0});
    // Without resources the listening sockets would stay ready, so only the stop is polled for a while.
    const int wait = again ? kAcceptAgain : silent_.empty() ? -1 : kLookAgain;
    const int ready = poll(fds.data(), again ? 1 : fds.size(), wait);
    if (ready < 0 && errno != EINTR) MR_LOG(Error, "poll: ", std::strerror(errno));
    if (fds[0].revents != 0) return;
    again = false;
    for (size_t i = 1; i < listening; ++i) again |= !AcceptPending(fds[i].fd);
    if (!silent_.empty()) LookAtSilent();
  }
}

void GrpcAcceptor::LookAtSilent() {
  const absl::Time now = Clock::Real()->Now();
  std::erase_if(silent_, [&](Silent& silent) {
    char first;
    const ssize_t got = recv(silent.fd.get(), &first, 1, MSG_PEEK | MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return now > silent.give_up;
    if (got <= 0) return true;
    if (first == kPlainStart) {
      if (now - warned_ > kBetweenWarnings) {
        warned_ = now;
        MR_LOG(Warning, "disconnected ", PeerName(silent.fd.get()),
               ", which does not use TLS as this server does. TensorFlow's clients and servers cannot: for them, start "
               "the job or the server with --insecure");
      }
      return true;
    }
    handler_->Handle(silent.listening, silent.fd.Release(), nullptr);
    return true;
  });
}

bool GrpcAcceptor::AcceptPending(int listening) {
  for (;;) {
    Fd fd = admission_->Accept(listening);
    if (!fd.ok()) return !Admission::OutOfResources(errno);
    SetTcpOptions(fd.get());
    if (tls_) {
      silent_.push_back({std::move(fd), listening, Clock::Real()->Now() + kFirstByte});
    } else {
      handler_->Handle(listening, fd.Release(), nullptr);
    }
  }
}

}  // namespace millrace::net
