// A free port, reserved until its task starts.
#pragma once

#include "millrace/base/fd.h"
#include "millrace/base/status.h"

namespace millrace::net {

// The port is bound on all interfaces until Release, so nobody else can take it. It is outside the system's range of
// ephemeral ports, so that nobody gets it by chance after Release.
class HeldPort {
 public:
  // RESOURCE_EXHAUSTED if there is no free port.
  static StatusOr<HeldPort> Take();

  int port() const { return port_; }
  void Release() { socket_.Reset(); }

 private:
  HeldPort(Fd socket, int port) : socket_(std::move(socket)), port_(port) {}
  Fd socket_;
  int port_;
};

}  // namespace millrace::net
