// Ranks that are the workers of a job (strategy/worker_group.h).
#pragma once

#include <memory>

#include "millrace/strategy/horovod/carrier.h"
#include "millrace/strategy/worker_group.h"

namespace millrace::hvd {

std::unique_ptr<Carrier> NewLaneCarrier(std::unique_ptr<WorkerGroup> workers);

}  // namespace millrace::hvd
