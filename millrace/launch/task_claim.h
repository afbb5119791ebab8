// The claim of a keeper to its task: on one machine, one keeper of a task at a time.
//
// A launcher that loses the connection to a keeper on another machine starts a new one there, while the old one, cut
// off, still runs the task's program. The new one ends the old one first.
#pragma once

#include <string>

#include "absl/time/time.h"
#include "millrace/base/fd.h"

namespace millrace::launch {

// A socket in Linux's abstract name space, which vanishes with its process. Not thread-safe.
class TaskClaim {
 public:
  // Asks the keeper that has the claim to end, and waits until it has, at most `limit`; then it is killed, and what it
  // ran with it (keeper_guard.h). An empty name, or a system without such sockets, gives an empty claim.
  static TaskClaim Take(const std::string& name, absl::Duration limit);

  TaskClaim() = default;
  bool ok() const { return socket_.ok(); }
  // To poll for reading; -1 if there is no claim. Readable when a later keeper asks.
  int fd() const { return socket_.get(); }
  // Whether a keeper of the same user has asked. Call it when fd() is readable.
  bool IsAsked();

 private:
  Fd socket_;
};

}  // namespace millrace::launch
