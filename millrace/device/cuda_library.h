// The border between libmillrace.so and libmillrace_cuda.so.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "millrace/device/cuda_devices.h"

namespace millrace {

// What libmillrace_cuda.so exports as `millrace_cuda_library`: the functions behind cuda_devices.h. `version` stays the
// first member, so that a library of any other version can be told.
struct CudaLibrary {
  const char* version;  // Version() of the sources that it was built from
  // The number of GPUs, at least 1. NOT_FOUND where nobody expects any (no driver, or the user hides them), UNAVAILABLE
  // if the driver has none, another error if something is wrong.
  StatusOr<int> (*device_count)();
  StatusOr<std::vector<std::unique_ptr<Device>>> (*new_devices)(const CudaDeviceOptions& options);
};

inline constexpr char kCudaLibrarySymbol[] = "millrace_cuda_library";

// Opens that file, which stays open. FAILED_PRECONDITION with the path if it is no such library or of another version
// than this one; nothing in it has run then.
StatusOr<const CudaLibrary*> OpenCudaLibrary(const std::string& path);

}  // namespace millrace

extern "C" const millrace::CudaLibrary millrace_cuda_library;
