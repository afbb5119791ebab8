// NVRTC, opened at run time: compiles programs for a GPU, on machines with and without one.
#pragma once

#include <string>

#include "millrace/base/status.h"

namespace millrace {

// Machine code (a cubin) for that architecture: 90 means sm_90. FAILED_PRECONDITION if NVRTC cannot be opened, INTERNAL
// with the compiler's words if it refuses the text.
// `resources`, if given, gets what the compiler says of registers and spills.
StatusOr<std::string> CompileForGpu(const std::string& text, int architecture, std::string* resources = nullptr);

// Its version, such as "13.0".
StatusOr<std::string> NvrtcVersion();

}  // namespace millrace
