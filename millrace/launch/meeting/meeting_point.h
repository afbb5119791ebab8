// Where the processes of a job meet, and how they know each other: the same for all of them.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <memory>
#include <string>
#include <vector>

#include "millrace/base/fd.h"
#include "millrace/launch/meeting/meeting_guard.h"

namespace millrace::launch {

struct MeetingPoint {
  std::string label = {};  // names the job: "Slurm step 7.0"
  // On one host: a socket of this name in Linux's abstract name space; otherwise empty.
  std::string local = {};
  // Otherwise a port of these, at one of these hosts.
  std::vector<std::string> hosts = {};
  std::vector<int> ports = {};
  std::shared_ptr<MeetingGuard> guard = nullptr;
};

// Some ports for a label, the same in every process; outside of the system's usual range of ephemeral ports.
std::vector<int> MeetingPorts(absl::string_view label);

// The address of a socket in the abstract name space, for this user.
struct LocalMeetingAddress {
  explicit LocalMeetingAddress(const std::string& name);
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
  sockaddr_un address = {};
  socklen_t size = 0;
};

// Whether the other end of a Unix socket is a process of this user.
bool IsSameUser(int socket);

}  // namespace millrace::launch
