#include "millrace/device/cuda/gpu_math.h"

#include <cstdlib>

#include "absl/strings/string_view.h"

namespace millrace {
namespace {

bool IsOff(const char* variable) {
  const char* const value = std::getenv(variable);
  return value != nullptr && absl::string_view(value) == "0";
}

}  // namespace

GpuMath GpuMath::FromEnvironment() {
  return {.tf32 = !IsOff("MILLRACE_TF32") && !IsOff("NVIDIA_TF32_OVERRIDE"),
          .deterministic = !IsOff("MILLRACE_CUDNN_DETERMINISTIC")};
}

}  // namespace millrace
