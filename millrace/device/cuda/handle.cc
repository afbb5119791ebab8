#include "millrace/device/cuda/handle.h"

namespace millrace {

Status CudaStatus(cudaError_t code, absl::string_view call, absl::string_view device) {
  if (code == cudaSuccess) return absl::OkStatus();
  // Clear the error so that the next call does not report it again; errors that broke the device persist.
  cudaGetLastError();
  const absl::string_view name = call.substr(0, call.find('('));
  const std::string text =
      absl::StrCat(name, " on ", device, ": ", cudaGetErrorName(code), ": ", cudaGetErrorString(code));
  switch (code) {
    case cudaErrorMemoryAllocation:
      return ResourceExhausted(text);
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorInvalidDevice:
    case cudaErrorDevicesUnavailable:
    case cudaErrorSystemNotReady:
    case cudaErrorInitializationError:
    case cudaErrorECCUncorrectable:
      return Unavailable(text);
    default:
      return Internal(text);
  }
}

}  // namespace millrace
