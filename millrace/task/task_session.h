// The state of one session on a task.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "millrace/base/mutex.h"
#include "millrace/device/device.h"
#include "millrace/runtime/kernel.h"
#include "millrace/runtime/resource_manager.h"
#include "millrace/tensor/memory_budget.h"

namespace millrace {

struct ActivePart;

struct TaskSessionOptions {
  // Identifies the session in the list of running parts.
  std::string handle = {};
  // The devices under their names in this session; if empty, the task's devices under their own names.
  std::vector<std::shared_ptr<Device>> devices = {};
  // State that belongs to the session; if null, the task's state is used, which outlives the session.
  std::shared_ptr<ResourceManager> resources = nullptr;
  // The bytes that its steps may take at once, with what variables and queues keep of their results; 0: no limit.
  size_t memory_limit = 0;
};

// The devices, the state and the stateful kernels that the parts of a session share. Created by Task::NewSession.
// Thread-safe. Parts keep it alive.
class TaskSession {
 public:
  // All of `options` must be set.
  explicit TaskSession(TaskSessionOptions options);
  // Frees the memory that its steps have left to later ones.
  ~TaskSession();

  const std::string& handle() const { return options_.handle; }
  const std::vector<std::shared_ptr<Device>>& devices() const { return options_.devices; }
  const std::vector<Device*>& device_pointers() const { return device_pointers_; }
  const std::shared_ptr<ResourceManager>& resources() const { return options_.resources; }
  const RefPtr<MemoryBudget>& memory() const { return memory_; }

  // What earlier runs leave to later ones. Guarded by the RunningParts of the task.
  std::vector<std::unique_ptr<ActivePart>>& idle_parts() const { return idle_parts_; }

  // Returns the kernel of a node. Kernels with state of their own (a random op's position in its stream) are cached in
  // the session by node, so that steps of different signatures share that state. For other nodes a new kernel is
  // created.
  StatusOr<std::shared_ptr<Kernel>> MakeKernel(const Node& node, Device* device);

 private:
  const TaskSessionOptions options_;
  const RefPtr<MemoryBudget> memory_;
  std::vector<Device*> device_pointers_;
  mutable std::vector<std::unique_ptr<ActivePart>> idle_parts_;
  Mutex mu_;
  absl::flat_hash_map<std::string, std::shared_ptr<Kernel>> stateful_kernels_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace
