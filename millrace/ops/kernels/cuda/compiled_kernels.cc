#include "millrace/ops/kernels/cuda/compiled_kernels.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "millrace/base/crc32c.h"
#include "millrace/base/log.h"
#include "millrace/base/mutex.h"
#include "millrace/device/cuda/handle.h"
#include "millrace/ops/kernels/cuda/nvrtc.h"

namespace millrace {
namespace {

// "" if there is none.
std::string CacheFolder() {
  if (const char* named = std::getenv("MILLRACE_KERNEL_CACHE"); named != nullptr) return named;
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache != '\0')
    return absl::StrCat(cache, "/millrace/kernels");
  if (const char* home = std::getenv("HOME"); home != nullptr && *home != '\0')
    return absl::StrCat(home, "/.cache/millrace/kernels");
  return "";
}

// A file: the magic, the crc32c of the rest, the length of the key, the key, the machine code.
constexpr char kMagic[] = "MRK1";

std::string FileFor(const std::string& folder, const std::string& key) {
  return absl::StrCat(folder, "/", absl::StrFormat("%08x%08x", Crc32c(key), ExtendCrc32c(1, key)));
}

std::string ReadCached(const std::string& file, const std::string& key) {
  std::ifstream in(file, std::ios::binary);
  if (!in) return "";
  std::stringstream content;
  content << in.rdbuf();
  const std::string data = content.str();
  uint32_t sum = 0, length = 0;
  if (data.size() < 12 || data.compare(0, 4, kMagic) != 0) return "";
  std::memcpy(&sum, data.data() + 4, 4);
  std::memcpy(&length, data.data() + 8, 4);
  if (Crc32c(absl::string_view(data).substr(8)) != sum || length > data.size() - 12) return "";
  if (data.compare(12, length, key) != 0) return "";
  return data.substr(12 + length);
}

// Whole or not at all, also beside other processes.
void WriteCached(const std::string& folder, const std::string& file, const std::string& key, const std::string& code) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  std::string rest(4, '\0');
  const uint32_t length = static_cast<uint32_t>(key.size());
  std::memcpy(rest.data(), &length, 4);
  absl::StrAppend(&rest, key, code);
  const uint32_t sum = Crc32c(rest);
  const std::string temporary = absl::StrCat(file, ".", getpid(), ".tmp");
  {
    std::ofstream out(temporary, std::ios::binary | std::ios::trunc);
    out.write(kMagic, 4).write(reinterpret_cast<const char*>(&sum), 4) << rest;
    out.close();
    if (!out) {
      unlink(temporary.c_str());
      return;
    }
  }
  if (std::rename(temporary.c_str(), file.c_str()) != 0) unlink(temporary.c_str());
}

StatusOr<std::string> MachineCode(const std::string& text, int architecture) {
  MR_ASSIGN_OR_RETURN(const std::string version, NvrtcVersion());
  const std::string key = absl::StrCat("sm_", architecture, " nvrtc ", version, "\n", text);
  const std::string folder = CacheFolder();
  const std::string file = folder.empty() ? "" : FileFor(folder, key);
  if (!file.empty()) {
    if (std::string code = ReadCached(file, key); !code.empty()) return code;
  }
  MR_ASSIGN_OR_RETURN(std::string code, CompileForGpu(text, architecture));
  if (!file.empty()) WriteCached(folder, file, key, code);
  return code;
}

struct Libraries {
  Mutex mu;
  // By architecture and text; they stay loaded.
  absl::flat_hash_map<std::pair<int, std::string>, cudaLibrary_t> libraries ABSL_GUARDED_BY(mu);
};

}  // namespace

StatusOr<cudaKernel_t> CompiledKernel(const std::string& text, const char* name, int ordinal) {
  static auto* const all = new Libraries;
  const std::string device = absl::StrCat("GPU:", ordinal);
  int major = 0, minor = 0;
  MR_RETURN_IF_CUDA_ERROR(device, cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, ordinal));
  MR_RETURN_IF_CUDA_ERROR(device, cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, ordinal));
  const int architecture = 10 * major + minor;
  // Held while compiling: who else needs a kernel then mostly needs the same.
  MutexLock lock(&all->mu);
  auto it = all->libraries.find(std::pair(architecture, text));
  if (it == all->libraries.end()) {
    MR_ASSIGN_OR_RETURN(const std::string code, MachineCode(text, architecture));
    cudaLibrary_t library = nullptr;
    MR_RETURN_IF_CUDA_ERROR(device,
                            cudaLibraryLoadData(&library, code.data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
    it = all->libraries.emplace(std::pair(architecture, text), library).first;
  }
  cudaKernel_t kernel = nullptr;
  MR_RETURN_IF_CUDA_ERROR(device, cudaLibraryGetKernel(&kernel, it->second, name));
  return kernel;
}

}  // namespace millrace
