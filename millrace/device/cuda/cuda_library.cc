// What libmillrace.so finds in libmillrace_cuda.so.
#include "millrace/device/cuda_library.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "millrace/device/cuda/built_for.h"
#include "millrace/device/cuda/cuda_device.h"

namespace millrace {
namespace {

// 13000 means 13.0.
std::string CudaVersion(int version) { return absl::StrCat(version / 1000, ".", version % 1000 / 10); }

StatusOr<int> CountGpus() {
  int count = 0;
  const cudaError_t code = cudaGetDeviceCount(&count);
  if (code == cudaSuccess && count > 0) return count;
  cudaGetLastError();
  int driver = 0;  // stays 0 if libcuda.so.1 cannot be opened
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) {
    return NotFound("there is no NVIDIA driver (libcuda.so.1)");
  }
  if (code == cudaErrorInsufficientDriver) {
    return FailedPrecondition("the NVIDIA driver is of CUDA ", CudaVersion(driver), ", and CUDA ",
                              CudaVersion(CUDART_VERSION), " needs a newer one");
  }
  if (code == cudaSuccess || code == cudaErrorNoDevice) {
    const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
    if (visible != nullptr) return NotFound("CUDA_VISIBLE_DEVICES=", visible, " hides all GPUs");
    return Unavailable("the NVIDIA driver finds no GPU");
  }
  return FailedPrecondition(CudaStatus(code, "cudaGetDeviceCount", "this machine").message());
}

StatusOr<std::vector<GpuCard>> Cards() {
  std::vector<GpuCard> cards;
  MR_ASSIGN_OR_RETURN(const int count, CountGpus());
  for (int i = 0; i < count; ++i) {
    const std::string name = absl::StrCat("GPU:", i);
    cudaDeviceProp props;
    MR_RETURN_IF_CUDA_ERROR(name, cudaGetDeviceProperties(&props, i));
    GpuCard card{.model = props.name, .memory = static_cast<int64_t>(props.totalGlobalMem)};
    MR_RETURN_IF_CUDA_ERROR(name, cudaSetDevice(i));
    MR_RETURN_IF_CUDA_ERROR(name, cudaDeviceGetStreamPriorityRange(&card.least_priority, &card.greatest_priority));
    cards.push_back(std::move(card));
  }
  return cards;
}

StatusOr<std::vector<GpuPlace>> Places(const GpuOptions& options) {
  static GpuLayout* const layout = new GpuLayout;
  MR_ASSIGN_OR_RETURN(const std::vector<GpuCard> cards, Cards());
  return layout->Agree(options, cards);
}

StatusOr<std::vector<std::unique_ptr<Device>>> NewDevices(const CudaDeviceOptions& options) {
  std::vector<std::unique_ptr<Device>> devices;
  MR_ASSIGN_OR_RETURN(const std::vector<GpuPlace> places, Places(options.gpus));
  int count = static_cast<int>(places.size());
  if (options.count >= 0) count = std::min(count, options.count);
  for (int i = 0; i < count; ++i) {
    MR_ASSIGN_OR_RETURN(Gpu * gpu, Gpu::Get(i, places[i]));
    devices.push_back(
        std::make_unique<CudaDevice>(absl::StrCat(options.task, "/device:GPU:", i), gpu, options.host_threads));
  }
  return devices;
}

}  // namespace
}  // namespace millrace

const millrace::CudaLibrary millrace_cuda_library = {MR_CUDA_VERSION, millrace::CountGpus, millrace::NewDevices};

// Has the loader refuse a libmillrace.so of another version before any code of this library runs.
extern "C" [[gnu::used]] const char* const millrace_cuda_needs = MR_CUDA_NEEDS;
