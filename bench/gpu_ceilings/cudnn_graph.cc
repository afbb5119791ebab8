#include "cudnn_graph.h"

#include <algorithm>
#include <set>
#include <stdexcept>

namespace gpu_ceilings {
namespace {

// Dimensions are N, C, H, W whatever the layout; the strides say NHWC.
Descriptor TensorOf(int64_t id, cudnnDataType_t type, std::vector<int64_t> dims) {
  const std::vector<int64_t> strides = {dims[1] * dims[2] * dims[3], 1, dims[1] * dims[3], dims[1]};
  return Descriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR)
      .Set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, type)
      .Set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, dims)
      .Set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, strides)
      .Set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, id)
      .Set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, int64_t{16})
      .Finalize();
}

Descriptor GeometryOf(const Convolution& of) {
  const int64_t total = std::max<int64_t>((of.out_size() - 1) * of.stride + of.kernel - of.size, 0);
  return Descriptor(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR)
      .Set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT)
      .Set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, CUDNN_CROSS_CORRELATION)
      .Set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, int64_t{2})
      .Set(CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, std::vector<int64_t>{1, 1})
      .Set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, std::vector<int64_t>{of.stride, of.stride})
      .Set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, std::vector<int64_t>{total / 2, total / 2})
      .Set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64,
           std::vector<int64_t>{total - total / 2, total - total / 2})
      .Finalize();
}

// The three operations have the same attributes under different names.
struct OperationNames {
  cudnnBackendDescriptorType_t type;
  cudnnBackendAttributeName_t geometry, alpha, beta, images, filters, results;
};

OperationNames NamesOf(Pass pass) {
  switch (pass) {
    case Pass::kInputGradient:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY};
    case Pass::kFilterGradient:
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

// The sum and the sum of squares of each channel.
Descriptor SumsOf(const Descriptor& results, int64_t channels) {
  return Descriptor(CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR)
      .Set(CUDNN_ATTR_OPERATION_GENSTATS_MODE, CUDNN_TYPE_GENSTATS_MODE, CUDNN_GENSTATS_SUM_SQSUM)
      .Set(CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT)
      .Set(CUDNN_ATTR_OPERATION_GENSTATS_XDESC, results)
      .Set(CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC, TensorOf(kSums, CUDNN_DATA_FLOAT, {1, channels, 1, 1}))
      .Set(CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC, TensorOf(kSquareSums, CUDNN_DATA_FLOAT, {1, channels, 1, 1}))
      .Finalize();
}

}  // namespace

void Check(cudnnStatus_t status, const char* what) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  char detail[512] = "";
  cudnnGetLastErrorString(detail, sizeof(detail));
  throw std::runtime_error(std::string(what) + ": " + cudnnGetErrorString(status) + " " + detail);
}

Descriptor::Descriptor(cudnnBackendDescriptorType_t type) {
  cudnnBackendDescriptor_t raw;
  Check(cudnnBackendCreateDescriptor(type, &raw), "cudnnBackendCreateDescriptor");
  raw_ = std::shared_ptr<void>(raw, [](void* each) { cudnnBackendDestroyDescriptor(each); });
}

Descriptor& Descriptor::Set(cudnnBackendAttributeName_t name, const std::vector<Descriptor>& values) {
  std::vector<cudnnBackendDescriptor_t> raw;
  for (const Descriptor& each : values) raw.push_back(each.get());
  return Set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, raw);
}

const char* NameOf(Pass pass) {
  switch (pass) {
    case Pass::kForward:
      return "forward";
    case Pass::kForwardWithSums:
      return "forward and sums";
    case Pass::kInputGradient:
      return "gradient of the input";
    case Pass::kFilterGradient:
      return "gradient of the filter";
  }
  return "";
}

Descriptor GraphOf(cudnnHandle_t handle, const Convolution& of, Pass pass) {
  const Descriptor images = TensorOf(kImages, CUDNN_DATA_BFLOAT16, {of.batch, of.channels, of.size, of.size});
  const Descriptor filters = TensorOf(kFilters, CUDNN_DATA_BFLOAT16, {of.filters, of.channels, of.kernel, of.kernel});
  const Descriptor results =
      TensorOf(kResults, CUDNN_DATA_BFLOAT16, {of.batch, of.filters, of.out_size(), of.out_size()});
  const OperationNames names = NamesOf(pass);
  std::vector<Descriptor> operations = {Descriptor(names.type)
                                            .Set(names.geometry, GeometryOf(of))
                                            .Set(names.alpha, CUDNN_TYPE_FLOAT, 1.0f)
                                            .Set(names.beta, CUDNN_TYPE_FLOAT, 0.0f)
                                            .Set(names.images, images)
                                            .Set(names.filters, filters)
                                            .Set(names.results, results)
                                            .Finalize()};
  if (pass == Pass::kForwardWithSums) operations.push_back(SumsOf(results, of.filters));
  Descriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  if (handle != nullptr) graph.Set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, handle);
  return graph.Set(CUDNN_ATTR_OPERATIONGRAPH_OPS, operations).Finalize();
}

std::vector<Engine> EnginesOf(const Descriptor& graph, const Descriptor* card) {
  std::vector<Engine> engines;
  std::set<int64_t> seen;
  for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    Descriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    heuristics.Set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph)
        .Set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, mode);
    if (card != nullptr) heuristics.Set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, *card);
    if (!heuristics.TryFinalize()) continue;
    int64_t count = 0;
    Check(cudnnBackendGetAttribute(heuristics.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0,
                                   &count, nullptr),
          "number of engines");
    std::vector<Descriptor> configs;
    std::vector<cudnnBackendDescriptor_t> raw;
    for (int64_t i = 0; i < count; ++i) {
      configs.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
      raw.push_back(configs.back().get());
    }
    Check(cudnnBackendGetAttribute(heuristics.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                   count, &count, raw.data()),
          "engines");
    for (int64_t i = 0; i < count; ++i) {
      Descriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
      cudnnBackendDescriptor_t at = engine.get();
      int64_t got = 0;
      Check(cudnnBackendGetAttribute(configs[i].get(), CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                     &got, &at),
            "engine");
      Engine each{configs[i]};
      Check(cudnnBackendGetAttribute(at, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &got, &each.index),
            "engine's index");
      cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
      Check(cudnnBackendGetAttribute(at, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                     CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &got, notes),
            "engine's notes");
      for (int64_t k = 0; k < got; ++k) each.deterministic &= notes[k] != CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
      if (seen.insert(each.index).second) engines.push_back(each);
    }
  }
  return engines;
}

}  // namespace gpu_ceilings
