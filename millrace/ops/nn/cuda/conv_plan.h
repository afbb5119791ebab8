// Convolutions as plans of cuDNN's.
#pragma once

#include <memory>
#include <string>

#include "absl/algorithm/container.h"
#include "millrace/device/cuda/cudnn.h"
#include "millrace/device/cuda/gpu_math.h"
#include "millrace/ops/nn/convolution.h"

namespace millrace {

// What a plan is for. Images are as the geometry has them; filters are [out, spatial..., in], with channels first
// [out, in, spatial...].
struct ConvPlanKey {
  ConvKind kind = ConvKind::kForward;
  DType dtype = DType::kFloat;
  GpuMath math;
  ConvGeometry geometry;

  friend bool operator==(const ConvPlanKey&, const ConvPlanKey&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const ConvPlanKey& k) {
    return H::combine(std::move(h), k.kind, k.dtype, k.math, k.geometry);
  }
  std::string DebugString() const;
};

// Where plans run: on a GPU by its handle, or nowhere, for tests, on a card by its properties (cuDNN's JSON).
struct CudnnTarget {
  cudnnHandle_t handle = nullptr;
  CudnnDescriptor card;
  static StatusOr<CudnnTarget> OfProperties(const Cudnn& cudnn, const std::string& json);
};

class ConvPlan {
 public:
  // Of the first engine that cuDNN's heuristics offer that gives the same bits each time, unless the key's math says
  // that it need not, and that adds up in float, without other conversions of float than to TF32, if that is on.
  // NOT_FOUND if there is none.
  static StatusOr<ConvPlan> Make(const Cudnn& cudnn, const CudnnTarget& target, const ConvPlanKey& key);

  // cuDNN's number of the engine.
  int64_t engine() const { return engine_; }
  int64_t workspace_size() const { return workspace_size_; }
  // Whether cuDNN says this of the engine: that it is not deterministic, that it uses tensor cores (TF32 for float), …
  bool Has(cudnnBackendNumericalNote_t note) const { return absl::c_linear_search(notes_, note); }

  // Enqueues it on the handle's stream. a, b and c are as in RunConvolution, aligned to kAlignment bytes.
  Status Run(const Cudnn& cudnn, cudnnHandle_t handle, const void* a, const void* b, void* c, void* workspace) const;

  static constexpr int64_t kAlignment = 16;

 private:
  ConvKind kind_ = ConvKind::kForward;
  CudnnDescriptor plan_;
  int64_t engine_ = -1;
  std::vector<cudnnBackendNumericalNote_t> notes_;
  int64_t workspace_size_ = 0;
};

// True for types of which cuDNN has convolutions and sizes that it may have an engine for.
bool MayHaveConvPlan(DType dtype, const ConvGeometry& geometry);

}  // namespace millrace
