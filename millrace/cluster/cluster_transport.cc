#include "millrace/cluster/cluster_transport.h"

#include <cstdlib>
#include <utility>

#include "millrace/net/lane/lane_transport.h"

namespace millrace {
namespace {

constexpr char kVariable[] = "MILLRACE_TRANSPORT";

}  // namespace

StatusOr<std::unique_ptr<net::Transport>> NewClusterTransport(const std::string& step_transport,
                                                              net::GrpcTransportOptions options) {
  net::LaneOptions lane;
  if (options.tls != nullptr) {
    MR_ASSIGN_OR_RETURN(lane.tls, net::TlsContext::Make(*options.tls));
  }
  const char* const variable = std::getenv(kVariable);
  const bool from_variable = step_transport.empty() && variable != nullptr && *variable != '\0';
  if (from_variable || !step_transport.empty()) {
    const StatusOr<net::LaneKind> kind = net::ParseLaneKind(from_variable ? variable : step_transport);
    if (!kind.ok())
      return from_variable ? WithPrefix(absl::StrCat("the environment variable ", kVariable, ": "), kind.status())
                           : kind.status();
    lane.kind = *kind;
  }
  std::unique_ptr<net::Transport> grpc = net::NewGrpcTransport(std::move(options));
  if (lane.kind == net::LaneKind::kGrpc) return grpc;
  return net::NewLaneTransport(std::move(grpc), std::move(lane));
}

}  // namespace millrace
