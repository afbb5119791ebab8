#include "millrace/device/cuda/opened_library.h"

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "millrace/base/log.h"

namespace millrace {
namespace {

constexpr char kFolders[] = "MILLRACE_CUDA_LIBRARIES";

}  // namespace

StatusOr<OpenedLibrary> OpenedLibrary::Open(const std::vector<std::string>& files) {
  const char* const named = std::getenv(kFolders);
  std::vector<std::string> paths;
  for (const absl::string_view folder : absl::StrSplit(named == nullptr ? "" : named, ':', absl::SkipEmpty())) {
    for (const std::string& file : files) {
      std::string path = absl::StrCat(folder, "/", file);
      if (access(path.c_str(), F_OK) == 0) paths.push_back(std::move(path));
    }
  }
  paths.insert(paths.end(), files.begin(), files.end());
  std::string why;
  for (const std::string& path : paths) {
    void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
      if (why.empty()) why = dlerror();  // begins with the path
      continue;
    }
    const link_map* map = nullptr;
    const bool is_known = dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0;
    OpenedLibrary library(handle, is_known ? map->l_name : path);
    MR_LOG(Debug, "opened ", library.path());
    return library;
  }
  return FailedPrecondition("cannot open ", why, "; install CUDA 13's libraries, or name their folder in ", kFolders);
}

StatusOr<void*> OpenedLibrary::Symbol(const char* name) const {
  if (void* const address = dlsym(handle_, name); address != nullptr) return address;
  return FailedPrecondition(path_, " has no function ", name, ": install a newer one");
}

}  // namespace millrace
