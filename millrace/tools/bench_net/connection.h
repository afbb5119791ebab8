// Lines and blocks over a connected socket. Every wait but that for the next question has a limit.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "millrace/base/fd.h"
#include "millrace/base/status.h"

namespace millrace::bench_net {

// How long the other side may be silent in the middle of something.
inline constexpr int kSilenceSeconds = 30;

// A stream socket. One thread at a time. Errors say "the connection ended" or how long the other side was silent.
class Connection {
 public:
  Connection() = default;
  explicit Connection(Fd fd);

  Status SendLine(absl::string_view line);
  // Without its newline. INVALID_ARGUMENT for one that is longer than any of ours: it is not our language.
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

// Port 0: one that the system chooses. UNAVAILABLE (ALREADY_EXISTS when the port is taken) names the address.
StatusOr<TcpListener> ListenTcp(const std::string& host, int port);
// Who connects next; waits `seconds`, or for ever when negative.
StatusOr<Connection> AcceptTcp(const TcpListener& listener, int seconds);
// Gives up after ten seconds.
StatusOr<Connection> ConnectTcp(const std::string& host, int port);

}  // namespace millrace::bench_net
