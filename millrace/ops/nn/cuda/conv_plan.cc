#include "millrace/ops/nn/cuda/conv_plan.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace millrace {
namespace {

// The tensors' numbers in a plan.
enum : int64_t { kImages = 1, kFilters, kResults };

using Ints = std::vector<int64_t>;

cudnnDataType_t CudnnType(DType dtype) {
  return dtype == DType::kHalf ? CUDNN_DATA_HALF : dtype == DType::kBFloat16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
}

// Dimensions are outermost, channels, spatial whatever the layout, which the strides say.
CudnnDescriptor ConvTensor(const Cudnn& cudnn, int64_t id, DType dtype, bool channels_first, const Ints& dims) {
  const size_t rank = dims.size();
  Ints strides(rank);
  int64_t stride = 1;
  if (!channels_first) {
    strides[1] = 1;
    stride = dims[1];
  }
  for (size_t d = rank - 1; d > 1; --d) {
    strides[d] = stride;
    stride *= dims[d];
  }
  if (channels_first) {
    strides[1] = stride;
    stride *= dims[1];
  }
  strides[0] = stride;
  return CudnnDescriptor(cudnn, CUDNN_BACKEND_TENSOR_DESCRIPTOR)
      .Set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, CudnnType(dtype))
      .Set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, dims)
      .Set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, strides)
      .Set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, id)
      .Set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, int64_t{ConvPlan::kAlignment})
      .Finalize();
}

// `fn` of each spatial dimension.
template <typename Fn>
Ints Spatial(const ConvGeometry& g, Fn fn, Ints before = {}) {
  for (int i = 3 - g.rank; i < 3; ++i) before.push_back(fn(g.dim[i]));
  return before;
}

CudnnDescriptor ConvWindows(const Cudnn& cudnn, const ConvGeometry& g) {
  return CudnnDescriptor(cudnn, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR)
      .Set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT)
      .Set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, CUDNN_CROSS_CORRELATION)
      .Set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, static_cast<int64_t>(g.rank))
      .Set(CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, Spatial(g, [](auto& d) { return d.dilation; }))
      .Set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, Spatial(g, [](auto& d) { return d.stride; }))
      .Set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, Spatial(g, [](auto& d) { return d.pad_before; }))
      .Set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, Spatial(g, [](auto& d) { return d.pad_after; }))
      .Finalize();
}

// The three operations have the same attributes under different names.
struct ConvAttributes {
  cudnnBackendDescriptorType_t type;
  cudnnBackendAttributeName_t windows, alpha, beta, images, filters, results;
};

ConvAttributes AttributesOf(ConvKind kind) {
  switch (kind) {
    case ConvKind::kBackwardInput:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY};
    case ConvKind::kBackwardFilter:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY};
    default:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y};
  }
}

CudnnDescriptor ConvGraph(const Cudnn& cudnn, const CudnnTarget& target, const ConvPlanKey& key) {
  const ConvGeometry& g = key.geometry;
  const auto tensor = [&](int64_t id, const Ints& dims) {
    return ConvTensor(cudnn, id, key.dtype, g.channels_first, dims);
  };
  const ConvAttributes names = AttributesOf(key.kind);
  const CudnnDescriptor operation =
      CudnnDescriptor(cudnn, names.type)
          .Set(names.windows, ConvWindows(cudnn, g))
          .Set(names.alpha, CUDNN_TYPE_FLOAT, 1.0f)
          .Set(names.beta, CUDNN_TYPE_FLOAT, 0.0f)
          .Set(names.images, tensor(kImages, Spatial(g, [](auto& d) { return d.in; }, {g.batch, g.in_channels})))
          .Set(names.filters,
               tensor(kFilters, Spatial(g, [](auto& d) { return d.window; }, {g.out_channels, g.filter_inputs()})))
          .Set(names.results, tensor(kResults, Spatial(g, [](auto& d) { return d.out; }, {g.batch, g.out_channels})))
          .Finalize();
  CudnnDescriptor graph(cudnn, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  if (target.handle != nullptr) graph.Set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, target.handle);
  return graph.Set(CUDNN_ATTR_OPERATIONGRAPH_OPS, operation).Finalize();
}

// Whether the engine, by what cuDNN says of it, is one that the key asks for.
bool IsWanted(const ConvPlan& plan, const ConvPlanKey& key) {
  const auto has = [&](cudnnBackendNumericalNote_t note) { return plan.Has(note); };
  if (key.math.deterministic && has(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC)) return false;
  if (has(CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION) || has(CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13))
    return false;
  if (key.dtype != DType::kFloat) return true;
  return !has(CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS) && (key.math.tf32 || !has(CUDNN_NUMERICAL_NOTE_TENSOR_CORE));
}

}  // namespace

std::string ConvPlanKey::DebugString() const {
  constexpr const char* kNames[] = {"convolution", "gradient of the input", "gradient of the filter"};
  const ConvGeometry& g = geometry;
  const auto join = [](const Ints& values) { return absl::StrJoin(values, "x"); };
  return absl::StrCat(kNames[static_cast<int>(kind)], " of ", DTypeName(dtype),
                      g.channels_first ? ", channels first" : "", math.tf32 ? "" : ", without TF32", ": ", g.batch,
                      " images of ", g.in_channels, " x ", join(Spatial(g, [](auto& d) { return d.in; })), " to ",
                      g.out_channels, " x ", join(Spatial(g, [](auto& d) { return d.out; })), ", window ",
                      join(Spatial(g, [](auto& d) { return d.window; })), ", stride ",
                      join(Spatial(g, [](auto& d) { return d.stride; })), ", dilation ",
                      join(Spatial(g, [](auto& d) { return d.dilation; })), ", padding ",
                      join(Spatial(g, [](auto& d) { return d.pad_before; })), " and ",
                      join(Spatial(g, [](auto& d) { return d.pad_after; })), ", groups ", g.groups);
}

StatusOr<CudnnTarget> CudnnTarget::OfProperties(const Cudnn& cudnn, const std::string& json) {
  CudnnTarget target;
  target.card =
      CudnnDescriptor(cudnn, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR)
          .Set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, std::vector<char>(json.begin(), json.end()))
          .Finalize();
  MR_RETURN_IF_ERROR(target.card.status());
  return target;
}

StatusOr<ConvPlan> ConvPlan::Make(const Cudnn& cudnn, const CudnnTarget& target, const ConvPlanKey& key) {
  constexpr int64_t kMostWorkspace = int64_t{1} << 30;
  const CudnnDescriptor graph = ConvGraph(cudnn, target, key);
  MR_RETURN_IF_ERROR(graph.status());
  std::string tried;
  for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    CudnnDescriptor heuristics(cudnn, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    heuristics.Set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph)
        .Set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, mode);
    if (target.handle == nullptr) heuristics.Set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, target.card);
    heuristics.Finalize();
    if (!heuristics.status().ok()) continue;
    for (const CudnnDescriptor& config :
         heuristics.GetAll(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)) {
      CudnnDescriptor engine(cudnn, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
      cudnnBackendDescriptor_t raw = engine.get();
      int64_t got = 0;
      if (cudnn.cudnnBackendGetAttribute(config.get(), CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                         &got, &raw) != CUDNN_STATUS_SUCCESS) {
        continue;
      }
      const auto index = engine.Get<int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1);
      ConvPlan plan;
      plan.notes_ = engine.Get<cudnnBackendNumericalNote_t>(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                                            CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
      if (!engine.status().ok() || index.empty() || !IsWanted(plan, key)) continue;
      absl::StrAppend(&tried, tried.empty() ? "" : " ", index[0]);
      plan.kind_ = key.kind;
      plan.engine_ = index[0];
      plan.plan_ = CudnnDescriptor(cudnn, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
      if (target.handle != nullptr) {
        plan.plan_.Set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, target.handle);
      } else {
        plan.plan_.Set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, target.card);
      }
      plan.plan_.Set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config).Finalize();
      const auto size = plan.plan_.Get<int64_t>(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1);
      if (!plan.plan_.status().ok() || size.empty() || size[0] > kMostWorkspace) continue;
      plan.workspace_size_ = size[0];
      return plan;
    }
  }
  return absl::NotFoundError(absl::StrCat("cuDNN has no engine for a ", key.DebugString(),
                                          tried.empty() ? "" : "; these make no plan: ", tried));
}

Status ConvPlan::Run(const Cudnn& cudnn, cudnnHandle_t handle, const void* a, const void* b, void* c,
                     void* workspace) const {
  const auto in = [](const void* p) { return const_cast<void*>(p); };
  std::vector<void*> memory;  // images, filters, results
  switch (kind_) {
    case ConvKind::kForward:
      memory = {in(a), in(b), c};
      break;
    case ConvKind::kBackwardInput:
      memory = {c, in(a), in(b)};
      break;
    case ConvKind::kBackwardFilter:
      memory = {in(a), c, in(b)};
      break;
  }
  const CudnnDescriptor pack =
      CudnnDescriptor(cudnn, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)
          .Set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, Ints{kImages, kFilters, kResults})
          .Set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, memory)
          .Set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, workspace)
          .Finalize();
  MR_RETURN_IF_ERROR(pack.status());
  return CudnnStatus(cudnn, cudnn.cudnnBackendExecute(handle, plan_.get(), pack.get()), "cudnnBackendExecute", "");
}

bool MayHaveConvPlan(DType dtype, const ConvGeometry& g) {
  if (dtype != DType::kFloat && dtype != DType::kHalf && dtype != DType::kBFloat16) return false;
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  return g.batch * g.in_pixels() * g.in_channels <= kMost && g.batch * g.out_pixels() * g.out_channels <= kMost;
}

}  // namespace millrace
