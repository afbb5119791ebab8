// What a step says of a device that failed in it.
#pragma once

#include "millrace/base/status.h"
#include "millrace/executor/plan.h"

namespace millrace {

// UNAVAILABLE, saying why, if a device that the plan's nodes run on has failed before.
Status CheckDevices(const Plan& plan);

// The status with which a step ends. If it is an error and a device of the plan's has failed, the message also has the
// step, and, unless the device named a node, those that may have done it: a device reports an error when the host next
// waits for it, and the node that waits is not to blame.
Status NameFailedDevice(const Plan& plan, int64_t step_id, Status status);

}  // namespace millrace
