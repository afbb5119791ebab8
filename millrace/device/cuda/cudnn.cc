#include "millrace/device/cuda/cudnn.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "millrace/device/cuda/opened_library.h"

namespace millrace {
namespace {

StatusOr<const Cudnn*> OpenCudnn() {
  MR_ASSIGN_OR_RETURN(const OpenedLibrary library, OpenedLibrary::Open({"libcudnn.so.9"}));
  Cudnn functions;
#define MR_FIND(name) MR_RETURN_IF_ERROR(library.Find(#name, &functions.name));
  MR_CUDNN_FUNCTIONS(MR_FIND)
#undef MR_FIND
  return new Cudnn(functions);
}

}  // namespace

StatusOr<const Cudnn*> Cudnn::Get() {
  static const auto* const cudnn = new StatusOr<const Cudnn*>(OpenCudnn());
  return *cudnn;
}

Status CudnnStatus(const Cudnn& cudnn, cudnnStatus_t code, absl::string_view call, absl::string_view where) {
  if (code == CUDNN_STATUS_SUCCESS) return absl::OkStatus();
  char detail[512] = "";
  cudnn.cudnnGetLastErrorString(detail, sizeof(detail));
  const std::string text = absl::StrCat(call, where.empty() ? "" : " on ", where, ": ", cudnn.cudnnGetErrorString(code),
                                        *detail == '\0' ? "" : ": ", detail);
  if (code == CUDNN_STATUS_ALLOC_FAILED || code == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED ||
      code == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED) {
    return ResourceExhausted(text);
  }
  return Internal(text);
}

CudnnDescriptor::State::~State() {
  if (raw != nullptr) cudnn->cudnnBackendDestroyDescriptor(raw);
}

CudnnDescriptor::CudnnDescriptor(const Cudnn& cudnn, cudnnBackendDescriptorType_t type)
    : state_(std::make_shared<State>()) {
  state_->cudnn = &cudnn;
  state_->status =
      CudnnStatus(cudnn, cudnn.cudnnBackendCreateDescriptor(type, &state_->raw), "cudnnBackendCreateDescriptor", "");
}

const Status& CudnnDescriptor::status() const { return state_->status; }

CudnnDescriptor& CudnnDescriptor::Set(cudnnBackendAttributeName_t name, const CudnnDescriptor& value) {
  if (state_->status.ok()) state_->status = value.status();
  const cudnnBackendDescriptor_t raw = value.get();
  return SetValues(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &raw);
}

CudnnDescriptor& CudnnDescriptor::SetValues(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                                            int64_t n, const void* values) {
  if (!state_->status.ok()) return *this;
  state_->status = CudnnStatus(*state_->cudnn, state_->cudnn->cudnnBackendSetAttribute(get(), name, type, n, values),
                               absl::StrCat("cudnnBackendSetAttribute(", static_cast<int>(name), ")"), "");
  return *this;
}

CudnnDescriptor& CudnnDescriptor::Finalize() {
  if (!state_->status.ok()) return *this;
  state_->status = CudnnStatus(*state_->cudnn, state_->cudnn->cudnnBackendFinalize(get()), "cudnnBackendFinalize", "");
  return *this;
}

int64_t CudnnDescriptor::GetValues(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t most,
                                   void* values) const {
  if (!state_->status.ok()) return 0;
  int64_t n = 0;
  state_->status =
      CudnnStatus(*state_->cudnn, state_->cudnn->cudnnBackendGetAttribute(get(), name, type, most, &n, values),
                  absl::StrCat("cudnnBackendGetAttribute(", static_cast<int>(name), ")"), "");
  return state_->status.ok() ? std::min(n, most) : 0;
}

std::vector<CudnnDescriptor> CudnnDescriptor::GetAll(cudnnBackendAttributeName_t name,
                                                     cudnnBackendDescriptorType_t type) const {
  if (!state_->status.ok()) return {};
  int64_t count = 0;
  state_->status = CudnnStatus(
      *state_->cudnn,
      state_->cudnn->cudnnBackendGetAttribute(get(), name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, nullptr),
      absl::StrCat("cudnnBackendGetAttribute(", static_cast<int>(name), ")"), "");
  std::vector<CudnnDescriptor> all;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (int64_t i = 0; i < count; ++i) {
    all.emplace_back(*state_->cudnn, type);
    if (!all.back().status().ok()) return {};
    raw.push_back(all.back().get());
  }
  all.resize(GetValues(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, count, raw.data()));
  return all;
}

}  // namespace millrace
