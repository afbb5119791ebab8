#include "millrace/net/connection_table.h"

#include <arpa/inet.h>

#include <cstring>
#include <fstream>
#include <sstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "millrace/net/address.h"

namespace millrace::net {
namespace {

constexpr absl::string_view kEstablished = "01";
constexpr absl::string_view kListening = "0A";

// The table prints addresses as 32-bit words in host byte order.
std::string RemoteEnd(absl::string_view text) {
  const std::pair<absl::string_view, absl::string_view> halves = absl::StrSplit(text, absl::MaxSplits(':', 1));
  uint32_t port = 0;
  if (!absl::SimpleHexAtoi(halves.second, &port)) return "";
  const size_t words = halves.first.size() / 8;
  if (halves.first.size() % 8 != 0 || (words != 1 && words != 4)) return "";
  uint32_t address[4];
  for (size_t i = 0; i < words; ++i) {
    if (!absl::SimpleHexAtoi(halves.first.substr(8 * i, 8), &address[i])) return "";
  }
  char name[INET6_ADDRSTRLEN];
  const uint32_t* v4 = words == 1 ? &address[0] : nullptr;
  if (words == 4 && address[0] == 0 && address[1] == 0 && address[2] == htonl(0xffff)) v4 = &address[3];
  const char* done =
      v4 != nullptr ? inet_ntop(AF_INET, v4, name, sizeof(name)) : inet_ntop(AF_INET6, address, name, sizeof(name));
  return done == nullptr ? "" : JoinHostPort(name, static_cast<int>(port));
}

}  // namespace

std::string NormalPeer(absl::string_view peer) {
  const bool v6 = absl::ConsumePrefix(&peer, "ipv6:");
  if (!v6 && !absl::ConsumePrefix(&peer, "ipv4:")) return "";
  const auto host_port = ParseHostPort(peer);
  if (!host_port.ok()) return "";
  unsigned char address[16];
  if (inet_pton(v6 ? AF_INET6 : AF_INET, host_port->host.c_str(), address) != 1) return "";
  char name[INET6_ADDRSTRLEN];
  const bool mapped = v6 && IN6_IS_ADDR_V4MAPPED(reinterpret_cast<const in6_addr*>(address));
  const char* done = mapped ? inet_ntop(AF_INET, address + 12, name, sizeof(name))
                            : inet_ntop(v6 ? AF_INET6 : AF_INET, address, name, sizeof(name));
  return done == nullptr ? "" : JoinHostPort(name, host_port->port);
}

bool ReadTcpTable(absl::string_view table, int local_port, absl::flat_hash_set<std::string>* remote_ends) {
  bool listens = false;
  for (const absl::string_view line : absl::StrSplit(table, '\n')) {
    const std::vector<absl::string_view> columns = absl::StrSplit(line, ' ', absl::SkipEmpty());
    if (columns.size() < 4 || (columns[3] != kEstablished && columns[3] != kListening)) continue;
    uint32_t port = 0;
    const std::pair<absl::string_view, absl::string_view> local = absl::StrSplit(columns[1], absl::MaxSplits(':', 1));
    if (!absl::SimpleHexAtoi(local.second, &port) || static_cast<int>(port) != local_port) continue;
    if (columns[3] == kListening) {
      listens = true;
    } else if (std::string end = RemoteEnd(columns[2]); !end.empty()) {
      remote_ends->insert(std::move(end));
    }
  }
  return listens;
}

std::vector<ConnectionTable::State> TcpConnectionTable::Look(absl::Span<const std::string> peers) {
  const int local_port = local_port_.load();
  absl::flat_hash_set<std::string> connected;
  bool listens = false;
  for (const char* name : {"/tcp", "/tcp6"}) {
    std::ifstream file(proc_net_ + name);
    if (!file || local_port == 0) continue;
    std::ostringstream text;
    text << file.rdbuf();
    // With a truncated table, clients would appear to be gone.
    if (file.bad() || text.fail()) return std::vector<State>(peers.size(), State::kUnknown);
    listens |= ReadTcpTable(text.str(), local_port, &connected);
  }
  std::vector<State> states;
  for (const std::string& peer : peers) {
    const std::string normal = NormalPeer(peer);
    states.push_back(!listens || normal.empty()   ? State::kUnknown
                     : connected.contains(normal) ? State::kConnected
                                                  : State::kGone);
  }
  return states;
}

}  // namespace millrace::net
