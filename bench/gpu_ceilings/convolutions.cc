#include <cudnn.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "cudnn_graph.h"
#include "tables.h"
#include "timing.h"

namespace gpu_ceilings {
namespace {

std::vector<Convolution> ConvolutionsOfResNets() {
  std::vector<Convolution> all;
  const int64_t cifar = 128, imagenet = 256;
  all.push_back({"ResNet-20 first", cifar, 3, 32, 16, 3, 1});
  all.push_back({"ResNet-20 stage 1", cifar, 16, 32, 16, 3, 1});
  all.push_back({"ResNet-20 stage 2 first", cifar, 16, 32, 32, 3, 2});
  all.push_back({"ResNet-20 stage 2 shortcut", cifar, 16, 32, 32, 1, 2});
  all.push_back({"ResNet-20 stage 2", cifar, 32, 16, 32, 3, 1});
  all.push_back({"ResNet-20 stage 3 first", cifar, 32, 16, 64, 3, 2});
  all.push_back({"ResNet-20 stage 3 shortcut", cifar, 32, 16, 64, 1, 2});
  all.push_back({"ResNet-20 stage 3", cifar, 64, 8, 64, 3, 1});
  all.push_back({"ResNet-50 first", imagenet, 3, 224, 64, 7, 2});
  int64_t in = 64, size = 56;
  for (const int64_t width : {64, 128, 256, 512}) {
    const std::string stage = "ResNet-50 width " + std::to_string(width);
    const int64_t stride = width == 64 ? 1 : 2;
    all.push_back({stage + " first 1x1", imagenet, in, size, width, 1, 1});
    all.push_back({stage + " first 3x3", imagenet, width, size, width, 3, stride});
    all.push_back({stage + " shortcut", imagenet, in, size, 4 * width, 1, stride});
    size /= stride;
    all.push_back({stage + " 1x1 in", imagenet, 4 * width, size, width, 1, 1});
    if (stride != 1) all.push_back({stage + " 3x3", imagenet, width, size, width, 3, 1});
    all.push_back({stage + " 1x1 out", imagenet, width, size, 4 * width, 1, 1});
    in = 4 * width;
  }
  return all;
}

// The handle stays with the process.
cudnnHandle_t NewHandle(cudaStream_t stream) {
  cudnnHandle_t handle;
  Check(cudnnCreate(&handle), "cudnnCreate");
  Check(cudnnSetStream(handle, stream), "cudnnSetStream");
  return handle;
}

struct Measured {
  double microseconds = 0;  // 0: not supported
  int64_t engine = -1;
};

class Bench {
 public:
  Bench() {
    Check(cudaStreamCreate(&stream_), "cudaStreamCreate");
    handle_ = NewHandle(stream_);
    const size_t largest = size_t{256} * 112 * 112 * 64 * 2 * 2;
    images_ = RandomMemory(largest);
    filters_ = RandomMemory(size_t{4} << 20 << 2);
    results_ = RandomMemory(largest);
    sums_ = RandomMemory(1 << 20);
    square_sums_ = RandomMemory(1 << 20);
    Check(cudaMalloc(&workspace_, kWorkspace), "cudaMalloc");
  }

  struct Best {
    Measured deterministic, any;
    size_t offered = 0;
  };
  Best Measure(const Convolution& of, Pass pass) {
    Best best;
    const std::vector<Engine> engines = EnginesOf(GraphOf(handle_, of, pass), nullptr);
    best.offered = engines.size();
    for (size_t i = 0; i < std::min<size_t>(engines.size(), 6); ++i) {
      const double microseconds = Time(engines[i]);
      if (microseconds == 0) continue;
      const Measured now = {microseconds, engines[i].index};
      const auto take = [&](Measured* at) {
        if (at->engine < 0 || now.microseconds < at->microseconds) *at = now;
      };
      take(&best.any);
      if (engines[i].deterministic) take(&best.deterministic);
    }
    return best;
  }

 private:
  static constexpr int64_t kWorkspace = int64_t{1} << 30;

  double Time(const Engine& engine) {
    Descriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    plan.Set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, handle_)
        .Set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, engine.config);
    if (!plan.TryFinalize()) return 0;
    int64_t need = 0, got = 0;
    Check(cudnnBackendGetAttribute(plan.get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &got,
                                   &need),
          "workspace");
    if (need > kWorkspace) return 0;
    const std::vector<int64_t> ids = {kImages, kFilters, kResults, kSums, kSquareSums};
    const std::vector<void*> memory = {images_, filters_, results_, sums_, square_sums_};
    Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    pack.Set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, ids)
        .Set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, memory)
        .Set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, workspace_)
        .Finalize();
    if (cudnnBackendExecute(handle_, plan.get(), pack.get()) != CUDNN_STATUS_SUCCESS) return 0;
    return MicrosecondsOf(stream_,
                          [&] { Check(cudnnBackendExecute(handle_, plan.get(), pack.get()), "cudnnBackendExecute"); });
  }

  cudaStream_t stream_;
  cudnnHandle_t handle_;
  void *images_, *filters_, *results_, *sums_, *square_sums_, *workspace_;
};

std::string Cell(const Convolution& of, const Measured& measured) {
  if (measured.engine < 0) return "none";
  char text[64];
  std::snprintf(text, sizeof(text), "%.1f us, %.0f TFLOP/s, engine %d", measured.microseconds,
                of.flops() / measured.microseconds / 1e6, static_cast<int>(measured.engine));
  return text;
}

}  // namespace

void PrintConvolutions(const std::string& only) {
  Bench bench;
  std::printf("## Convolutions in bfloat16, NHWC (batch 128 and 256)\n\n");
  std::printf("| where | C x size -> filters, kernel, stride | pass | best deterministic | best of all | offered |\n");
  std::printf("|---|---|---|---|---|---|\n");
  for (const Convolution& of : ConvolutionsOfResNets()) {
    if (of.where.find(only) == std::string::npos) continue;
    for (const Pass pass : kPasses) {
      if (pass == Pass::kInputGradient && of.channels == 3) continue;  // images have no gradient
      Bench::Best best;
      try {
        best = bench.Measure(of, pass);
      } catch (const std::runtime_error& error) {
        std::fprintf(stderr, "%s, %s: %s\n", of.where.c_str(), NameOf(pass), error.what());
      }
      std::printf("| %s | %d x %d -> %d, %d, %d | %s | %s | %s | %zu |\n", of.where.c_str(),
                  static_cast<int>(of.channels), static_cast<int>(of.size), static_cast<int>(of.filters),
                  static_cast<int>(of.kernel), static_cast<int>(of.stride), NameOf(pass),
                  Cell(of, best.deterministic).c_str(), Cell(of, best.any).c_str(), best.offered);
      std::fflush(stdout);
    }
  }
  std::printf("\n");
}

void WriteProperties(const std::string& path) {
  Descriptor card(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  card.Set(CUDNN_ATTR_DEVICEPROP_DEVICE_ID, CUDNN_TYPE_INT32, int32_t{0}).Finalize();
  int64_t size = 0;
  Check(cudnnBackendGetAttribute(card.get(), CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, 0, &size,
                                 nullptr),
        "size of the properties");
  std::string text(size, '\0');
  Check(cudnnBackendGetAttribute(card.get(), CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, size, &size,
                                 text.data()),
        "properties");
  while (!text.empty() && text.back() == '\0') text.pop_back();
  if (!(std::ofstream(path) << text << "\n")) throw std::runtime_error("cannot write " + path);
}

int PrintPlans(const std::string& path) {
  std::ifstream file(path);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (text.empty()) throw std::runtime_error("cannot read " + path);
  while (text.back() == '\n') text.pop_back();
  Descriptor card(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  card.Set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, std::vector<char>(text.begin(), text.end()))
      .Finalize();
  int without = 0;
  for (const Convolution& of : ConvolutionsOfResNets()) {
    for (const Pass pass : kPasses) {
      size_t deterministic = 0;
      std::vector<Engine> engines;
      try {
        engines = EnginesOf(GraphOf(nullptr, of, pass), &card);
      } catch (const std::runtime_error& error) {
        std::fprintf(stderr, "%s, %s: %s\n", of.where.c_str(), NameOf(pass), error.what());
      }
      std::printf("%s, %s:", of.where.c_str(), NameOf(pass));
      for (const Engine& each : engines) {
        deterministic += each.deterministic;
        std::printf(" %d%s", static_cast<int>(each.index), each.deterministic ? "" : "*");
      }
      std::printf("%s\n", deterministic == 0 ? " none that is deterministic" : "");
      // For the sums cuDNN has an engine only where there is a device.
      if (pass != Pass::kForwardWithSums) without += deterministic == 0;
    }
  }
  std::printf("%d without a deterministic engine (* is not deterministic)\n", without);
  return without;
}

}  // namespace gpu_ceilings
