// Descriptors of cuDNN's graph API as values, and convolutions made of them.
#pragma once

#include <cudnn.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace gpu_ceilings {

// Throws std::runtime_error naming the call.
void Check(cudnnStatus_t status, const char* what);

// One descriptor. Copies share it.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(cudnnBackendDescriptorType_t type);

  template <typename T>
  Descriptor& Set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const std::vector<T>& values) {
    Check(cudnnBackendSetAttribute(get(), name, type, values.size(), values.data()), "cudnnBackendSetAttribute");
    return *this;
  }
  template <typename T>
  Descriptor& Set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, T value) {
    Check(cudnnBackendSetAttribute(get(), name, type, 1, &value), "cudnnBackendSetAttribute");
    return *this;
  }
  Descriptor& Set(cudnnBackendAttributeName_t name, const std::vector<Descriptor>& values);
  Descriptor& Set(cudnnBackendAttributeName_t name, const Descriptor& value) { return Set(name, std::vector{value}); }
  Descriptor& Finalize() {
    Check(cudnnBackendFinalize(get()), "cudnnBackendFinalize");
    return *this;
  }
  // False where cuDNN does not support what is described.
  bool TryFinalize() { return cudnnBackendFinalize(get()) == CUDNN_STATUS_SUCCESS; }

  cudnnBackendDescriptor_t get() const { return raw_.get(); }

 private:
  std::shared_ptr<void> raw_;
};

enum class Pass { kForward, kForwardWithSums, kInputGradient, kFilterGradient };
constexpr Pass kPasses[] = {Pass::kForward, Pass::kForwardWithSums, Pass::kInputGradient, Pass::kFilterGradient};
const char* NameOf(Pass pass);

// A convolution of bfloat16 images in NHWC, with the padding of SAME where the stride divides the size.
struct Convolution {
  std::string where;
  int64_t batch, channels, size, filters, kernel, stride;

  int64_t out_size() const { return (size + stride - 1) / stride; }
  double flops() const { return 2.0 * batch * out_size() * out_size() * filters * channels * kernel * kernel; }
};

// The tensors' numbers in a plan's variant pack.
enum : int64_t { kImages = 1, kFilters, kResults, kSums, kSquareSums };

// An operation graph of one pass.
Descriptor GraphOf(cudnnHandle_t handle, const Convolution& convolution, Pass pass);

struct Engine {
  Descriptor config;
  int64_t index = 0;
  bool deterministic = true;
};
// By cuDNN's heuristics, the best first, each engine once. `card` may be null: the device of the graph's handle.
std::vector<Engine> EnginesOf(const Descriptor& graph, const Descriptor* card);

}  // namespace gpu_ceilings
