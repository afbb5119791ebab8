// cuDNN's graph API, opened at run time.
#pragma once

#include <cudnn.h>

#include <memory>
#include <vector>

#include "absl/strings/string_view.h"
#include "millrace/base/status.h"

namespace millrace {

// The functions in use.
#define MR_CUDNN_FUNCTIONS(F)      \
  F(cudnnCreate)                   \
  F(cudnnDestroy)                  \
  F(cudnnSetStream)                \
  F(cudnnGetVersion)               \
  F(cudnnGetErrorString)           \
  F(cudnnGetLastErrorString)       \
  F(cudnnBackendCreateDescriptor)  \
  F(cudnnBackendDestroyDescriptor) \
  F(cudnnBackendSetAttribute)      \
  F(cudnnBackendGetAttribute)      \
  F(cudnnBackendFinalize)          \
  F(cudnnBackendExecute)

struct Cudnn {
#define MR_DECLARE(name) decltype(::name)* name = nullptr;
  MR_CUDNN_FUNCTIONS(MR_DECLARE)
#undef MR_DECLARE

  // Opened by the first call; all others return the same, or the same error.
  static StatusOr<const Cudnn*> Get();
};

// OK, or an error that names the call, `where` and cuDNN's reason.
Status CudnnStatus(const Cudnn& cudnn, cudnnStatus_t code, absl::string_view call, absl::string_view where);

// One descriptor of a graph. Copies share it. The first error of a call is kept and the later calls do nothing; a
// descriptor that is made with others has theirs.
class CudnnDescriptor {
 public:
  CudnnDescriptor() = default;
  CudnnDescriptor(const Cudnn& cudnn, cudnnBackendDescriptorType_t type);

  template <typename T>
  CudnnDescriptor& Set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                       const std::vector<T>& values) {
    return SetValues(name, type, static_cast<int64_t>(values.size()), values.data());
  }
  template <typename T>
  CudnnDescriptor& Set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, T value) {
    return SetValues(name, type, 1, &value);
  }
  CudnnDescriptor& Set(cudnnBackendAttributeName_t name, const CudnnDescriptor& value);
  CudnnDescriptor& Finalize();

  // Up to `most` values; empty after an error.
  template <typename T>
  std::vector<T> Get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t most) const {
    std::vector<T> values(most);
    values.resize(GetValues(name, type, most, values.data()));
    return values;
  }
  // Those of a list of descriptors of a type.
  std::vector<CudnnDescriptor> GetAll(cudnnBackendAttributeName_t name, cudnnBackendDescriptorType_t type) const;

  const Status& status() const;
  cudnnBackendDescriptor_t get() const { return state_->raw; }

 private:
  struct State {
    const Cudnn* cudnn;
    cudnnBackendDescriptor_t raw = nullptr;
    Status status;
    ~State();
  };

  CudnnDescriptor& SetValues(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t n,
                             const void* values);
  int64_t GetValues(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t most,
                    void* values) const;

  std::shared_ptr<State> state_;
};

}  // namespace millrace
