#include "millrace/device/cuda/cublas.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "millrace/device/cuda/opened_library.h"

namespace millrace {
namespace {

StatusOr<const Cublas*> OpenCublas() {
  MR_ASSIGN_OR_RETURN(const OpenedLibrary library, OpenedLibrary::Open({"libcublas.so.13"}));
  Cublas functions;
  // Two steps, so that the name is what the macro stands for.
#define MR_TEXT(name) #name
#define MR_FIND(name) MR_RETURN_IF_ERROR(library.Find(MR_TEXT(name), &functions.name));
  MR_CUBLAS_FUNCTIONS(MR_FIND)
#undef MR_FIND
#undef MR_TEXT
  return new Cublas(functions);
}

}  // namespace

StatusOr<const Cublas*> Cublas::Get() {
  static const auto* const cublas = new StatusOr<const Cublas*>(OpenCublas());
  return *cublas;
}

Status CublasStatus(cublasStatus_t code, absl::string_view call, absl::string_view device) {
  if (code == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  const StatusOr<const Cublas*> cublas = Cublas::Get();
  const std::string reason = cublas.ok() ? (*cublas)->cublasGetStatusString(code) : absl::StrCat("code ", code);
  const std::string text = absl::StrCat(call, " on ", device, ": ", reason);
  return code == CUBLAS_STATUS_ALLOC_FAILED ? ResourceExhausted(text) : Internal(text);
}

}  // namespace millrace
