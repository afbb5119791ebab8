#include "millrace/ops/kernels/cuda/nvrtc.h"

#include <nvrtc.h>

#include "absl/strings/str_cat.h"
#include "millrace/device/cuda/opened_library.h"

namespace millrace {
namespace {

#define MR_NVRTC_FUNCTIONS(F) \
  F(nvrtcVersion)             \
  F(nvrtcGetErrorString)      \
  F(nvrtcCreateProgram)       \
  F(nvrtcDestroyProgram)      \
  F(nvrtcCompileProgram)      \
  F(nvrtcGetCUBINSize)        \
  F(nvrtcGetCUBIN)            \
  F(nvrtcGetProgramLogSize)   \
  F(nvrtcGetProgramLog)

struct Nvrtc {
#define MR_DECLARE(name) decltype(::name)* name = nullptr;
  MR_NVRTC_FUNCTIONS(MR_DECLARE)
#undef MR_DECLARE
};

StatusOr<const Nvrtc*> OpenNvrtc() {
  MR_ASSIGN_OR_RETURN(const OpenedLibrary library, OpenedLibrary::Open({"libnvrtc.so.13"}));
  Nvrtc functions;
#define MR_FIND(name) MR_RETURN_IF_ERROR(library.Find(#name, &functions.name));
  MR_NVRTC_FUNCTIONS(MR_FIND)
#undef MR_FIND
  return new Nvrtc(functions);
}

StatusOr<const Nvrtc*> TheNvrtc() {
  static const auto* const nvrtc = new StatusOr<const Nvrtc*>(OpenNvrtc());
  return *nvrtc;
}

}  // namespace

StatusOr<std::string> NvrtcVersion() {
  MR_ASSIGN_OR_RETURN(const Nvrtc* nvrtc, TheNvrtc());
  int major = 0, minor = 0;
  nvrtc->nvrtcVersion(&major, &minor);
  return absl::StrCat(major, ".", minor);
}

StatusOr<std::string> CompileForGpu(const std::string& text, int architecture, std::string* resources) {
  MR_ASSIGN_OR_RETURN(const Nvrtc* nvrtc, TheNvrtc());
  nvrtcProgram program = nullptr;
  nvrtcResult code = nvrtc->nvrtcCreateProgram(&program, text.c_str(), "millrace.cu", 0, nullptr, nullptr);
  if (code != NVRTC_SUCCESS) return Internal("nvrtcCreateProgram: ", nvrtc->nvrtcGetErrorString(code));
  const std::string target = absl::StrCat("--gpu-architecture=sm_", architecture);
  // As on the CPU: a*b+c is two roundings.
  const char* const options[] = {target.c_str(), "--std=c++17", "--fmad=false", "--ptxas-options=-v"};
  code = nvrtc->nvrtcCompileProgram(program, resources != nullptr ? 4 : 3, options);
  const auto log = [&] {
    size_t size = 0;
    nvrtc->nvrtcGetProgramLogSize(program, &size);
    std::string text(size, '\0');
    nvrtc->nvrtcGetProgramLog(program, text.data());
    return text;
  };
  std::string result;
  Status status;
  if (code == NVRTC_SUCCESS) {
    size_t size = 0;
    nvrtc->nvrtcGetCUBINSize(program, &size);
    result.resize(size);
    nvrtc->nvrtcGetCUBIN(program, result.data());
    if (resources != nullptr) *resources = log();
  } else {
    status = Internal("NVRTC: ", nvrtc->nvrtcGetErrorString(code), "\n", log().c_str());
  }
  nvrtc->nvrtcDestroyProgram(&program);
  if (!status.ok()) return status;
  return result;
}

}  // namespace millrace
