// Lines and blocks of bytes over a connected socket. Every wait has a limit, except for the one for the next question.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "millrace/base/fd.h"
#include "millrace/base/status.h"

namespace millrace::bench_net {

// How long the other side may be silent in the middle of an exchange.
inline constexpr int kSilenceSeconds = 30;

// A stream socket. Used by one thread at a time. Errors say "the connection ended" or how long the other side was
// silent.
class Connection {
 public:
  Connection() = default;
  explicit Connection(Fd fd);

  Status SendLine(absl::string_view line);
  // Returns a line without its newline. INVALID_ARGUMENT if it is longer than any line of this protocol.
  StatusOr<std::string> ReadLine();
  Status Send(const void* data, size_t size);
  Status Receive(void* data, size_t size);

  int fd() const { return fd_.get(); }
  explicit operator bool() const { return fd_.ok(); }

 private:
  Fd fd_;
};

struct TcpListener {
  Fd fd;
  int port = 0;
};

// For port 0 the system chooses a port. UNAVAILABLE, or ALREADY_EXISTS if the port is taken, names the address.
StatusOr<TcpListener> ListenTcp(const std::string& host, int port);
// Waits `seconds` for the next connection, or without a limit if negative.
StatusOr<Connection> AcceptTcp(const TcpListener& listener, int seconds);
// Gives up after ten seconds.
StatusOr<Connection> ConnectTcp(const std::string& host, int port);

}  // namespace millrace::bench_net
