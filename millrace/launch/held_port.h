// A free port, kept free until its task starts.
#pragma once

#include "millrace/base/fd.h"
#include "millrace/base/status.h"

namespace millrace::launch {

// The port lies outside of the range that the system gives to outgoing connections, so that after Release nobody gets it by chance; until then it is
// bound on all interfaces, so that nobody else can have it at all.
class HeldPort {
 public:
  // RESOURCE_EXHAUSTED when there is none.
  static StatusOr<HeldPort> Take();

  int port() const { return port_; }
  void Release() { socket_.Reset(); }

 private:
  HeldPort(Fd socket, int port) : socket_(std::move(socket)), port_(port) {}
  Fd socket_;
  int port_;
};

}  // namespace millrace::launch
