// Lanes within a host: frames through a Unix socket, large pieces out of the sender's memory.
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "millrace/net/lane/hello.h"
#include "millrace/net/lane/medium.h"
#include "millrace/net/lane/sockets.h"

namespace millrace::net {
namespace {

class UnixLaneMedium final : public LaneMedium {
 public:
  LaneKind kind() const override { return LaneKind::kShm; }
  absl::string_view carrier() const override { return "the Unix socket"; }

  StatusOr<std::vector<Fd>> Listen(const HostPort&, LaneOffer* offer) const override {
    std::string random(16, '\0');
    FillWithRandom(random.data(), random.size());
    const std::string name = absl::StrCat("millrace-lane-", absl::BytesToHexString(random));
    MR_ASSIGN_OR_RETURN(Fd socket, ListenUnix(name));
    offer->set_unix_socket(name);
    std::vector<Fd> sockets;
    sockets.push_back(std::move(socket));
    return sockets;
  }
  // This user's processes only.
  Status Admit(int fd) const override { return PeerProcess(fd).status(); }

  StatusOr<Fd> Dial(LaneCore*, const LaneOffer& offer, const std::string&, absl::Time) const override {
    if (offer.unix_socket().empty()) return FailedPrecondition("it offers no Unix socket");
    if (offer.host() != HostIdentity()) return FailedPrecondition("it is on another host or in another container");
    MR_ASSIGN_OR_RETURN(Fd fd, ConnectUnix(offer.unix_socket()));
    MR_RETURN_IF_ERROR(PeerProcess(fd.get()).status());
    return fd;
  }

  bool within_host() const override { return true; }
  bool reads_memory() const override { return true; }
  Status AllowReads(int fd) const override {
    MR_ASSIGN_OR_RETURN(const pid_t process, PeerProcess(fd));
    return AllowMemoryReads(process);
  }
  StatusOr<std::shared_ptr<const PeerMemory>> OpenMemory(int fd, uint64_t address,
                                                         const MemoryProbe& probe) const override {
    MR_ASSIGN_OR_RETURN(const pid_t process, PeerProcess(fd));
    return OpenProcessMemory(process, address, probe);
  }
};

}  // namespace

const LaneMedium* UnixMedium() {
  static const UnixLaneMedium medium;
  return &medium;
}

}  // namespace millrace::net
