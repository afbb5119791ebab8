#include "millrace/strategy/horovod/rendezvous.h"

#include <cstdlib>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "millrace/cluster/task_config.h"
#include "millrace/net/held_port.h"
#include "millrace/strategy/horovod/lane_carrier.h"
#include "millrace/strategy/horovod/mpi_carrier.h"

namespace millrace::hvd {
namespace {

bool StartedByMpirun() { return std::getenv("OMPI_COMM_WORLD_RANK") != nullptr; }

StatusOr<std::unique_ptr<Carrier>> ByLane(const TaskConfig& config, WorkerGroupOptions options) {
  MR_ASSIGN_OR_RETURN(std::unique_ptr<WorkerGroup> workers, WorkerGroup::Start(config, std::move(options)));
  return NewLaneCarrier(std::move(workers));
}

// The ranks of one host tell each other their ports by MPI, and have no more use for it then.
StatusOr<std::unique_ptr<Carrier>> ByLaneOfMpi(std::unique_ptr<Carrier> mpi, WorkerGroupOptions options) {
  MR_ASSIGN_OR_RETURN(net::HeldPort held, net::HeldPort::Take());
  MR_ASSIGN_OR_RETURN(const Tensor ports, mpi->AllGather(Tensor::Of<int32_t>({held.port()})));
  std::vector<std::string> addresses;
  for (const int32_t port : ports.flat<int32_t>()) addresses.push_back(absl::StrCat("localhost:", port));
  TaskConfig config{.task = {.job = "worker", .index = mpi->rank()}};
  MR_ASSIGN_OR_RETURN(config.cluster, ClusterSpec::Of({{"worker", std::move(addresses)}}));
  held.Release();
  auto carrier = ByLane(config, std::move(options));
  MR_RETURN_IF_ERROR(mpi->Leave());
  return carrier;
}

}  // namespace

StatusOr<std::unique_ptr<Carrier>> Meet(const std::string& carrier, WorkerGroupOptions options) {
  if (carrier != "auto" && carrier != "lane" && carrier != "mpi")
    return InvalidArgument("hvd::Init: there is no carrier '", carrier, "'; there are auto, lane and mpi");
  MR_ASSIGN_OR_RETURN(const std::optional<TaskConfig> config, TaskConfig::FromEnvironment());
  if (config || !StartedByMpirun()) {
    if (carrier == "mpi") {
      return FailedPrecondition("hvd::Init: the carrier mpi is for programs that mpirun has started",
                                config ? ", and TF_CONFIG is set" : "");
    }
    return ByLane(config.value_or(TaskConfig()), std::move(options));
  }
  MR_ASSIGN_OR_RETURN(std::unique_ptr<Carrier> mpi, NewMpiCarrier());
  const bool one_host = mpi->local_size() == mpi->size();
  if (carrier == "mpi" || (carrier == "auto" && !one_host)) return mpi;
  if (!one_host)
    return FailedPrecondition("hvd::Init: between the hosts of mpirun the lane has no certificates; use the carrier ",
                              "mpi, or start the program with `millrace launch --hosts`");
  return ByLaneOfMpi(std::move(mpi), std::move(options));
}

}  // namespace millrace::hvd
