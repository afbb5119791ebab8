#include "millrace/launch/meeting/meeting_point.h"

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace millrace::launch {
namespace {

constexpr int kMeetingPortsLow = 12000, kMeetingPortsHigh = 32000;
constexpr int kMeetingPortCount = 8;

}  // namespace

std::vector<int> MeetingPorts(absl::string_view label) {
  uint64_t place = 0xcbf29ce484222325u;  // FNV-1a
  for (const char c : label) place = (place ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  std::vector<int> ports;
  while (ports.size() < kMeetingPortCount) {
    place = place * 6364136223846793005u + 1442695040888963407u;
    const int port = kMeetingPortsLow + static_cast<int>((place >> 33) % (kMeetingPortsHigh - kMeetingPortsLow));
    if (std::find(ports.begin(), ports.end(), port) == ports.end()) ports.push_back(port);
  }
  return ports;
}

LocalMeetingAddress::LocalMeetingAddress(const std::string& name) {
  const std::string full = absl::StrCat("millrace-meeting/", getuid(), "/", name);
  address.sun_family = AF_UNIX;
  const size_t length = std::min(full.size(), sizeof(address.sun_path) - 1);
  std::memcpy(address.sun_path + 1, full.data(), length);  // after the 0 that makes it abstract
  size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
}

bool IsSameUser(int socket) {
  ucred peer = {};
  socklen_t size = sizeof(peer);
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == getuid();
}

}  // namespace millrace::launch
