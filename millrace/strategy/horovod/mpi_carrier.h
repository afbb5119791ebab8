// Ranks that mpirun has started, over MPI.
#pragma once

#include <memory>

#include "millrace/strategy/horovod/carrier.h"

namespace millrace::hvd {

// Initialises MPI unless the program has; what was initialised here is finalised by Leave, after which MPI is of no
// more use in this process. FAILED_PRECONDITION naming the package if there is no libmpi.so. All calls, including the
// destructor, on one thread.
//
// If a rank dies, mpirun ends the others.
StatusOr<std::unique_ptr<Carrier>> NewMpiCarrier();

}  // namespace millrace::hvd
