// How a process finds the other ranks.
#pragma once

#include <memory>
#include <string>

#include "millrace/strategy/horovod/carrier.h"
#include "millrace/strategy/worker_group.h"

namespace millrace::hvd {

// By TF_CONFIG if it is set; otherwise by mpirun, if it has started this process; otherwise alone. `carrier` is
// "auto", "lane" or "mpi".
StatusOr<std::unique_ptr<Carrier>> Meet(const std::string& carrier, WorkerGroupOptions options);

}  // namespace millrace::hvd
