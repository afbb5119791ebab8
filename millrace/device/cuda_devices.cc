#include "millrace/device/cuda_devices.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "millrace/base/log.h"
#include "millrace/base/version.h"
#include "millrace/device/cuda_library.h"

namespace millrace {
namespace {

constexpr char kFileName[] = "libmillrace_cuda.so";

struct Found {
  const CudaLibrary* library = nullptr;  // null if it is not there or cannot be used
  int count = 0;
  std::string why;
};

// The folder of the library that this function is in.
std::string OwnFolder() {
  Dl_info info;
  if (dladdr(reinterpret_cast<const void*>(&CudaDeviceCount), &info) == 0) return "";
  const std::string path = info.dli_fname;
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

Found Find() {
  Found found;
  const char* const named = std::getenv("MILLRACE_CUDA_LIBRARY");
  std::string path = named == nullptr ? "" : named;
  if (path.empty()) {
    const std::string folder = OwnFolder();
    path = absl::StrCat(folder, "/", kFileName);
    if (folder.empty() || access(path.c_str(), F_OK) != 0) {
      found.why = absl::StrCat("there is no ", kFileName, " beside libmillrace.so");
      return found;
    }
  }
  const StatusOr<const CudaLibrary*> library = OpenCudaLibrary(path);
  if (!library.ok()) {
    found.why = std::string(library.status().message());
    MR_LOG(Warning, "continuing without GPUs: ", found.why);
    return found;
  }
  const StatusOr<int> count = (*library)->device_count();
  if (count.ok()) {
    found.library = *library;
    found.count = *count;
    return found;
  }
  found.why = std::string(count.status().message());
  if (absl::IsNotFound(count.status())) {
    MR_LOG(Debug, "no GPUs: ", found.why);
  } else if (absl::IsUnavailable(count.status())) {
    MR_LOG(Info, "no GPUs: ", found.why);
  } else {
    MR_LOG(Warning, "continuing without GPUs: ", found.why);
  }
  return found;
}

// Looks once, when a device is first asked for.
const Found& Cuda() {
  static const Found* const found = new Found(Find());
  return *found;
}

}  // namespace

StatusOr<const CudaLibrary*> OpenCudaLibrary(const std::string& path) {
  // By its path even if that has no slash, so that no other file of this name is opened.
  const std::string file = absl::StrContains(path, '/') ? path : absl::StrCat("./", path);
  void* const handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const std::string why = dlerror();
    // Such as the symbol that only a libmillrace.so of the library's own version has.
    if (absl::StrContains(why, "undefined symbol")) {
      return FailedPrecondition(path, " was built with another libmillrace.so than this one, which is ", Version(),
                                ": install both from one build (", why, ")");
    }
    return FailedPrecondition("cannot open ", absl::StartsWith(why, file) ? "" : absl::StrCat(file, ": "), why);
  }
  const auto* const library = static_cast<const CudaLibrary*>(dlsym(handle, kCudaLibrarySymbol));
  if (library == nullptr || library->version == nullptr) {
    dlclose(handle);
    return FailedPrecondition(path, " is not Millrace's library for CUDA: it has no symbol ", kCudaLibrarySymbol);
  }
  if (absl::string_view(library->version) != Version()) {
    const Status status =
        FailedPrecondition(path, " is of version ", library->version, " and libmillrace.so of version ", Version(),
                           ": install both from one build");
    dlclose(handle);
    return status;
  }
  return library;
}

StatusOr<std::vector<std::unique_ptr<Device>>> NewCudaDevices(const CudaDeviceOptions& options) {
  if (options.count == 0 || CudaDeviceCount() == 0) return std::vector<std::unique_ptr<Device>>();
  return Cuda().library->new_devices(options);
}

int CudaDeviceCount() { return Cuda().count; }

const std::string& WhyNoCudaDevices() { return Cuda().why; }

}  // namespace millrace
