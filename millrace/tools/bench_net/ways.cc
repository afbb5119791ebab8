#include "millrace/tools/bench_net/ways.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "millrace/base/clock.h"
#include "millrace/base/mutex.h"
#include "millrace/net/address.h"
#include "millrace/tools/bench_net/partner.h"
#include "millrace/tools/bench_net/transport_kinds.h"

namespace millrace::bench_net {
namespace {

constexpr absl::Duration kCallTimeout = absl::Minutes(2);
// A lane that can be established is established long before this.
constexpr absl::Duration kLaneTimeout = absl::Seconds(10);

StatusOr<Transfer> OpenMemcpy(PartnerLink* partner, size_t size) {
  MR_ASSIGN_OR_RETURN(TouchedMemory memory, TouchedMemory::Private(size));
  auto source = std::make_shared<TouchedMemory>(std::move(memory));
  return [partner, source](size_t bytes) {
    std::memcpy(partner->here(), source->data(), bytes);
    // Keeps the compiler from eliding all but the last of several copies.
    asm volatile("" : : "r"(partner->here()) : "memory");
    return absl::OkStatus();
  };
}

StatusOr<Transfer> OpenReadProcess(PartnerLink* partner) {
  MR_RETURN_IF_ERROR(partner->ReadProcess(1));
  return [partner](size_t bytes) -> Status {
    MR_RETURN_IF_ERROR(partner->AskReady());
    return partner->ReadProcess(bytes);
  };
}

// Lists RDMA devices with the speeds that their drivers report. Millrace has no transport for them, so they are not
// measured.
StatusOr<Transfer> FindRdma() {
  std::vector<std::string> found;
  std::error_code ignored;
  for (const auto& device : std::filesystem::directory_iterator("/sys/class/infiniband", ignored)) {
    std::string rate;
    std::ifstream in(device.path() / "ports" / "1" / "rate");
    std::getline(in, rate);
    found.push_back(absl::StrCat(device.path().filename().string(), rate.empty() ? "" : ", by its driver ", rate));
  }
  if (found.empty()) return NotFound("none found");
  return Unimplemented(absl::StrJoin(found, "; "), " (not measured)");
}

// A transport of Millrace and its calls.
class Calls {
 public:
  Calls(const TransportKind& kind, const std::string& address)
      : transport_(kind.make()), channel_(transport_->Connect(address)) {}

  Status Fetch(uint64_t size) {
    auto answer = std::make_shared<Answer>();
    std::string question(reinterpret_cast<const char*>(&size), sizeof(size));
    channel_->Call(kReadMethod, net::Bytes::Of(std::move(question)), {.timeout = kCallTimeout, .every_step = true},
                   [answer](StatusOr<net::Bytes> bytes) {
                     answer->status = bytes.status();
                     if (bytes.ok()) answer->size = bytes->size();
                     answer->here.Notify();
                   });
    answer->here.Wait();
    MR_RETURN_IF_ERROR(answer->status);
    return answer->size == size ? absl::OkStatus() : DataLoss(answer->size, " bytes came of ", size);
  }

  // Waits until that lane carries the calls, since otherwise another transport would be measured.
  Status WaitForLane(const std::string& kind) {
    const absl::Time deadline = Clock::Real()->Now() + kLaneTimeout;
    Notification never;
    while (true) {
      MR_RETURN_IF_ERROR(Fetch(1));
      for (const net::PeerStatus& peer : transport_->status().peers) {
        if (!peer.outgoing) continue;
        if (peer.kind == kind) return absl::OkStatus();
        const bool is_other_lane = peer.kind != "grpc";
        if (is_other_lane || Clock::Real()->Now() > deadline)
          return Unavailable("not available, ", peer.kind, " is used instead: ", peer.why_not_better);
      }
      never.WaitFor(absl::Milliseconds(1));
    }
  }

 private:
  struct Answer {
    Notification here;
    Status status;
    size_t size = 0;
  };
  const std::unique_ptr<net::Transport> transport_;
  const std::shared_ptr<net::Channel> channel_;
};

StatusOr<Transfer> OpenCalls(PartnerLink* partner, const TransportKind& kind) {
  MR_ASSIGN_OR_RETURN(const int port, partner->OpenTransport(kind.name));
  auto calls = std::make_shared<Calls>(kind, net::JoinHostPort(partner->host(), port));
  MR_RETURN_IF_ERROR(kind.is_lane ? calls->WaitForLane(kind.name) : calls->Fetch(1));
  return [calls](size_t bytes) { return calls->Fetch(bytes); };
}

}  // namespace

std::vector<Way> WaysTo(PartnerLink* partner) {
  const auto copy_size = partner->here_size();
  std::vector<Way> ways = {{.name = "memcpy", .title = "memcpy", .kind = Way::Kind::kCopy, .open = [=] {
                              return OpenMemcpy(partner, copy_size);
                            }}};
  if (partner->same_host()) {
    ways.push_back({.name = "shared_mapping", .title = "shared mapping", .open = [=]() -> StatusOr<Transfer> {
                      return [partner](size_t bytes) -> Status {
                        MR_RETURN_IF_ERROR(partner->AskReady());
                        std::memcpy(partner->here(), partner->shared(), bytes);
                        return absl::OkStatus();
                      };
                    }});
    ways.push_back(
        {.name = "process_vm_readv", .title = "process_vm_readv", .open = [=] { return OpenReadProcess(partner); }});
    ways.push_back({.name = "unix_socket", .title = "Unix socket", .open = [=]() -> StatusOr<Transfer> {
                      return [partner](size_t bytes) { return partner->Fetch(bytes); };
                    }});
  }
  ways.push_back(
      {.name = "tcp", .title = partner->same_host() ? "TCP, loopback" : "TCP", .open = [=]() -> StatusOr<Transfer> {
         MR_RETURN_IF_ERROR(partner->UseTcp());
         return [partner](size_t bytes) { return partner->Fetch(bytes); };
       }});
  ways.push_back({.name = "rdma", .title = "RDMA", .open = FindRdma});
  for (const TransportKind& kind : TransportKinds()) {
    if (kind.same_host && !partner->same_host()) continue;
    ways.push_back(
        {.name = absl::StrCat("millrace_", kind.name), .title = kind.title, .kind = Way::Kind::kMillrace, .open = [=] {
           return OpenCalls(partner, kind);
         }});
  }
  return ways;
}

}  // namespace millrace::bench_net
