// The registry of kernels by op and device.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "millrace/base/mutex.h"
#include "millrace/runtime/kernel.h"

namespace millrace {

enum class DeviceKind { kCpu, kCuda };

inline constexpr DeviceKind kCpu = DeviceKind::kCpu;
inline constexpr DeviceKind kCuda = DeviceKind::kCuda;

const char* DeviceKindName(DeviceKind kind);  // "CPU", "GPU": Device::type()

// The nodes that a kernel is for: those whose attr `attr` is one of `types`, and `other_attr` one of `other_types`. A
// null attr may be anything.
struct KernelTypes {
  const char* attr = nullptr;
  std::vector<DType> types = {};
  const char* other_attr = nullptr;
  std::vector<DType> other_types = {};
  bool Include(const Node& node) const;
};

// Registration happens when a library is loaded: ours before main, that of a kind of device later. Thread-safe.
class KernelRegistry {
 public:
  using Factory = std::unique_ptr<Kernel> (*)(KernelInit&);

  static KernelRegistry& Global();

  // A null factory stands for the CPU's kernel; see MILLRACE_HOST_KERNEL. The types of several kernels of an op and
  // device must be disjoint; a kernel for all types gives way to those for some.
  void Register(std::string op, DeviceKind device, Factory factory, KernelTypes types = {});
  // Whether there is a kernel for some type.
  bool Has(absl::string_view op, absl::string_view device_type) const;
  // Whether there is a kernel for the node.
  bool HasFor(const Node& node, absl::string_view device_type) const;

  // What makes kernels for nodes that have none on devices of a type. For tests of devices.
  struct Fallback {
    std::function<bool(const Node& node)> accepts;
    std::function<StatusOr<std::unique_ptr<Kernel>>(const Node& node, Device* device)> create;
  };
  void SetFallback(DeviceKind device, Fallback fallback);

  // NOT_FOUND if the device has no kernel for the op; otherwise the status of the kernel's constructor, which may
  // reject the dtype, for example. Errors name the node, op and device.
  StatusOr<std::unique_ptr<Kernel>> Create(const Node& node, Device* device) const;
  // The kernel of another kind of device, to run on this one.
  StatusOr<std::unique_ptr<Kernel>> CreateAs(DeviceKind kind, const Node& node, Device* device) const;
  std::vector<std::string> DevicesFor(absl::string_view op) const;

 private:
  StatusOr<std::unique_ptr<Kernel>> CreateOf(absl::string_view device_type, const Node& node, Device* device) const;

  struct Entry {
    Factory factory;
    KernelTypes types;
  };
  using Key = std::pair<std::string, std::string>;  // op and device type

  const Entry* Find(const Node& node, absl::string_view device_type) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  mutable Mutex mu_;
  absl::flat_hash_map<Key, std::vector<Entry>> entries_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<std::string, Fallback> fallbacks_ ABSL_GUARDED_BY(mu_);  // by device type
};

struct KernelRegistration {
  KernelRegistration(const char* op, DeviceKind device, KernelRegistry::Factory factory, KernelTypes types = {}) {
    KernelRegistry::Global().Register(op, device, factory, std::move(types));
  }
};

// MILLRACE_KERNEL(Add, kCpu, BinaryKernel<AddOp>): the class must have a constructor that takes KernelInit&. Variadic
// because template arguments may contain commas.
#define MILLRACE_KERNEL(op, device, ...)                                                     \
  static const ::millrace::KernelRegistration MR_CONCAT(mr_kernel_, __COUNTER__)(            \
      #op, device, [](::millrace::KernelInit& init) -> std::unique_ptr<::millrace::Kernel> { \
        return std::make_unique<__VA_ARGS__>(init);                                          \
      })

// MILLRACE_KERNEL_OF(MatMul, kCuda, ({"T", {DType::kFloat, DType::kHalf}}), CudaMatMulKernel): a kernel for those nodes
// only whose attr has one of these types. Placement knows it, so that soft placement finds another device for the rest.
#define MILLRACE_KERNEL_OF(op, device, types, ...)                                \
  static const ::millrace::KernelRegistration MR_CONCAT(mr_kernel_, __COUNTER__)( \
      #op, device,                                                                \
      [](::millrace::KernelInit& init) -> std::unique_ptr<::millrace::Kernel> {   \
        return std::make_unique<__VA_ARGS__>(init);                               \
      },                                                                          \
      ::millrace::KernelTypes MR_UNPACK types)
#define MR_UNPACK(...) __VA_ARGS__

// MILLRACE_HOST_KERNEL(AddV2, kCuda, "T", DType::kInt32): on such a device, nodes whose attr T is int32 run the CPU's
// kernel, with all of their inputs and outputs in host memory. For arithmetic on shapes and indices, whose results the
// host reads. Without an attr: all nodes of the op.
#define MILLRACE_HOST_KERNEL(op, device, ...)                                         \
  static const ::millrace::HostKernelRegistration MR_CONCAT(mr_kernel_, __COUNTER__)( \
      #op, device __VA_OPT__(, ) __VA_ARGS__)

struct HostKernelRegistration {
  HostKernelRegistration(const char* op, DeviceKind device, const char* attr = nullptr, DType type = DType::kInvalid);
};

// Fails `init` with UNIMPLEMENTED because the kernel does not support `dtype`.
void FailDType(KernelInit& init, DType dtype);

}  // namespace millrace
