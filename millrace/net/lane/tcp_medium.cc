// Lanes over TCP, between hosts and within one.
#include <utility>

#include "millrace/net/lane/medium.h"
#include "millrace/net/lane/sockets.h"
#include "millrace/net/tcp_sockets.h"

namespace millrace::net {
namespace {

class TcpLaneMedium final : public LaneMedium {
 public:
  LaneKind kind() const override { return LaneKind::kTcp; }
  absl::string_view carrier() const override { return "TCP"; }

  StatusOr<std::vector<Fd>> Listen(const HostPort& address, LaneOffer* offer) const override {
    MR_ASSIGN_OR_RETURN(TcpListeners listeners, ListenTcp({address.host, 0}));
    offer->set_tcp_port(static_cast<uint32_t>(listeners.port));
    return std::move(listeners.sockets);
  }
  Status Admit(int fd) const override {
    SetTcpOptions(fd);
    return absl::OkStatus();
  }

  StatusOr<Fd> Dial(LaneCore* core, const LaneOffer& offer, const std::string& host,
                    absl::Time deadline) const override {
    if (offer.tcp_port() == 0) return FailedPrecondition("it offers no TCP port");
    const int stop = core->closing.get();
    const StatusOr<std::vector<std::string>> hosts = core->lookups.Find(host, deadline, stop);
    StatusOr<Fd> fd =
        hosts.ok() ? ConnectTcp(*hosts, static_cast<int>(offer.tcp_port()), deadline, stop) : hosts.status();
    if (!fd.ok()) return WithPrefix("over TCP: ", fd.status());
    return fd;
  }

  bool within_host() const override { return false; }
  bool reads_memory() const override { return false; }
  Status AllowReads(int) const override { return FailedPrecondition("memory is not read over TCP"); }
  StatusOr<std::shared_ptr<const PeerMemory>> OpenMemory(int, uint64_t, const MemoryProbe&) const override {
    return FailedPrecondition("memory is not read over TCP");
  }
};

}  // namespace

const LaneMedium* TcpMedium() {
  static const TcpLaneMedium medium;
  return &medium;
}

}  // namespace millrace::net
