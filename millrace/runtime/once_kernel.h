// Kernels whose outcome is recorded in runs that may be repeated.
#pragma once

#include <memory>

#include "millrace/runtime/kernel.h"

namespace millrace {

// Wraps a kernel whose is_recorded() is true: in a run with an identity its outputs are recorded, and a repetition of
// the run gets them instead of calling the kernel again, unless its resource has begun another epoch since
// (Resource::epoch). Other runs pay one virtual call.
std::unique_ptr<Kernel> RunOnce(std::unique_ptr<Kernel> kernel);

}  // namespace millrace
