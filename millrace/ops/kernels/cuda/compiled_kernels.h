// Kernels of programs, compiled when they are first needed and kept: in the process, and in a folder for later ones.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "millrace/base/status.h"

namespace millrace {

// The kernel `name` of the program `text` for the GPU of that number. Thread-safe; the same text is compiled once.
// Machine code is kept in MILLRACE_KERNEL_CACHE, by default ~/.cache/millrace/kernels; a file there that is damaged or
// of another compiler is as good as none, and a folder that cannot be written is no error.
StatusOr<cudaKernel_t> CompiledKernel(const std::string& text, const char* name, int ordinal);

}  // namespace millrace
