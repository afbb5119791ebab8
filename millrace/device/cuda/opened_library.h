// A library of NVIDIA's that is opened at run time, when the first op needs it.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "millrace/base/status.h"

namespace millrace {

// Stays open until the process ends: its handles and threads may outlive every object. Cheap to copy.
class OpenedLibrary {
 public:
  // Opens the first of `files` ("libcublas.so.13", …) that is there: in the folders of MILLRACE_CUDA_LIBRARIES
  // (separated by colons), else where the system's loader looks. FAILED_PRECONDITION names the first of them, why it
  // cannot be opened, and what to do; the caller says which op needs it.
  static StatusOr<OpenedLibrary> Open(const std::vector<std::string>& files);

  // *function = the function `name`. FAILED_PRECONDITION if the library has none, because it is too old.
  template <typename Function>
  Status Find(const char* name, Function** function) const {
    MR_ASSIGN_OR_RETURN(void* const address, Symbol(name));
    *function = reinterpret_cast<Function*>(address);
    return absl::OkStatus();
  }

  const std::string& path() const { return path_; }

 private:
  OpenedLibrary(void* handle, std::string path) : handle_(handle), path_(std::move(path)) {}
  StatusOr<void*> Symbol(const char* name) const;

  void* handle_;
  std::string path_;
};

}  // namespace millrace
