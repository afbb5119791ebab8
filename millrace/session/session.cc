#include "millrace/session/session.h"

#include "millrace/base/mutex.h"
#include "millrace/device/device.h"
#include "millrace/session/direct_session.h"

namespace millrace {
namespace {

struct Factories {
  Mutex mu;
  std::vector<std::unique_ptr<SessionFactory>> list ABSL_GUARDED_BY(mu);
};

Factories& AllFactories() {
  static Factories* const factories = new Factories;
  return *factories;
}

}  // namespace

void SessionFactory::Register(std::unique_ptr<SessionFactory> factory) {
  MutexLock lock(&AllFactories().mu);
  AllFactories().list.push_back(std::move(factory));
}

StatusOr<std::vector<DeviceInfo>> Session::ListDeviceInfo() {
  std::vector<DeviceInfo> infos;
  for (const Device* device : ListDevices()) {
    infos.push_back({.name = device->name(),
                     .type = device->type(),
                     .memory_limit = device->memory_use().limit,
                     .incarnation = device->incarnation()});
  }
  return infos;
}

StatusOr<std::unique_ptr<Session>> Session::Create(const SessionOptions& options) {
  if (options.cpu_devices < 1) {
    return InvalidArgument("cpu_devices is ", options.cpu_devices, "; a session needs at least one");
  }
  if (options.intra_op_threads < 0 || options.inter_op_threads < 0) {
    return InvalidArgument("the number of threads is negative");
  }
  if (options.target.empty()) return DirectSession::Make(options);
  SessionFactory* found = nullptr;
  {
    MutexLock lock(&AllFactories().mu);
    for (const auto& factory : AllFactories().list) {
      if (factory->Accepts(options.target)) found = factory.get();
    }
  }
  if (found == nullptr) {
    return InvalidArgument("no kind of session in this program supports the target '", options.target,
                           "'; leave it empty to run in this process");
  }
  return found->Create(options);
}

}  // namespace millrace
