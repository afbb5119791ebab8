// The registry of kernels by op and device.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "millrace/runtime/kernel.h"

namespace millrace {

enum class DeviceKind { kCpu, kCuda };

inline constexpr DeviceKind kCpu = DeviceKind::kCpu;
inline constexpr DeviceKind kCuda = DeviceKind::kCuda;

const char* DeviceKindName(DeviceKind kind);  // "CPU", "GPU": Device::type()

// Registration happens during static initialization; look-ups are thread-safe.
class KernelRegistry {
 public:
  using Factory = std::unique_ptr<Kernel> (*)(KernelInit&);

  static KernelRegistry& Global();

  void Register(std::string op, DeviceKind device, Factory factory);
  bool Has(absl::string_view op, absl::string_view device_type) const;
  // NOT_FOUND if the device has no kernel for the op; otherwise the status of the kernel's constructor, which may
  // reject the dtype, for example. Errors name the node, op and device.
  StatusOr<std::unique_ptr<Kernel>> Create(const Node& node, Device* device) const;
  std::vector<std::string> DevicesFor(absl::string_view op) const;

 private:
  absl::flat_hash_map<std::pair<std::string, std::string>, Factory> factories_;
};

struct KernelRegistration {
  KernelRegistration(const char* op, DeviceKind device, KernelRegistry::Factory factory) {
    KernelRegistry::Global().Register(op, device, factory);
  }
};

// MILLRACE_KERNEL(Add, kCpu, BinaryKernel<AddOp>): the class must have a constructor that takes KernelInit&. Variadic
// because template arguments may contain commas.
#define MILLRACE_KERNEL(op, device, ...)                                                     \
  static const ::millrace::KernelRegistration MR_CONCAT(mr_kernel_, __COUNTER__)(            \
      #op, device, [](::millrace::KernelInit& init) -> std::unique_ptr<::millrace::Kernel> { \
        return std::make_unique<__VA_ARGS__>(init);                                          \
      })

// Fails `init` with UNIMPLEMENTED because the kernel does not support `dtype`.
void FailDType(KernelInit& init, DType dtype);

}  // namespace millrace
