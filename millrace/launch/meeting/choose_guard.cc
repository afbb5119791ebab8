#include "millrace/launch/meeting/choose_guard.h"

#include "millrace/net/address.h"

namespace millrace::launch {
namespace {

std::string VariableOf(const Environment& environment, const char* name) {
  const auto found = environment.find(name);
  return found == environment.end() ? "" : found->second;
}

}  // namespace

StatusOr<std::unique_ptr<MeetingGuard>> ChooseGuard(const Environment& environment, absl::string_view label) {
  if (const std::string secret = VariableOf(environment, kJobSecretVariable); !secret.empty())
    return MakeSecretGuard(secret, label);
  StatusOr<std::unique_ptr<MeetingGuard>> munge = MakeMungeGuard(VariableOf(environment, kMungeSocketVariable));
  if (munge.ok()) return munge;
  return FailedPrecondition("the tasks on several hosts have nothing to know each other by: set ", kJobSecretVariable,
                            " to the same secret for all of them (export ", kJobSecretVariable,
                            "=$(openssl rand -hex 16), and for mpirun -x ", kJobSecretVariable,
                            "), or run munge on the hosts (", munge.status().message(), ")");
}

StatusOr<MeetingPoint> ChooseMeetingPoint(const Environment& environment, const Standing& standing,
                                          const std::string& meet) {
  MeetingPoint point = {.label = standing.scheduler};
  if (meet.empty() && standing.local_size == standing.size) {
    point.local = standing.scheduler;
    point.guard = MakeSameUserGuard();
    return point;
  }
  point.hosts = standing.first_hosts;
  point.ports = MeetingPorts(point.label);
  if (!meet.empty()) {
    point.hosts = {meet};
    if (const StatusOr<net::HostPort> address = net::ParseHostPort(meet); address.ok()) {
      point.hosts = {address->host};
      point.ports = {address->port};
    }
  }
  if (point.hosts.empty()) {
    return InvalidArgument(standing.scheduler == "flags" ? "no flag says" : standing.scheduler + " does not say",
                           " where rank 0 is: give --meet HOST, the host of rank 0, to all tasks");
  }
  // Rank 0 listens under its own name: on loopback only if that is one.
  if (standing.rank == 0) point.hosts = {meet.empty() ? standing.address : point.hosts[0]};
  MR_ASSIGN_OR_RETURN(point.guard, ChooseGuard(environment, point.label));
  return point;
}

}  // namespace millrace::launch
