// Places variables on parameter servers and everything else on the worker that builds the graph.
//
//   Scope root = Scope::NewRoot().WithDeviceFunction(
//       ReplicaDeviceSetter({.ps_tasks = 2, .worker_device = "/job:worker/task:0"}));
//   Var w(root, ...);                   // /job:ps/task:0
//   Var b(root, ...);                   // /job:ps/task:1
//   Output y = ops::MatMul(root, x, w);  // /job:worker/task:0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "millrace/api/scope.h"

namespace millrace {

// Chooses the parameter server (task index, from 0) of a node.
using PsStrategy = std::function<int(const Node& node)>;

// Round robin.
PsStrategy RoundRobinStrategy(int ps_tasks);
// The server with the least load so far, the first one in case of a tie. The default `load` is VariableBytes.
PsStrategy GreedyStrategy(int ps_tasks, std::function<int64_t(const Node& node)> load = nullptr);
// The size of a variable by its attrs `shape` and `dtype`; an unknown dimension counts as 1.
int64_t VariableBytes(const Node& variable);

// The ops whose state workers share: variables and mutable tables.
const std::vector<std::string>& StandardPsOps();

struct ReplicaDeviceSetterOptions {
  int ps_tasks = 0;  // 0 makes the device function a no-op
  std::string ps_device = "/job:ps";
  std::string worker_device = "/job:worker";
  // Complete devices that inner scopes set only partially. If false, a node with any requested device is left
  // unchanged.
  bool merge_devices = true;
  std::vector<std::string> ps_ops = StandardPsOps();
  PsStrategy ps_strategy = nullptr;  // the default is round robin
};

// A node in ps_ops gets ps_device with the task that the strategy chooses, unless it requests another job; all others
// get worker_device. Copies of the result share one sequence. Replicas that build the graph in the same order get the
// same placement. A malformed device name becomes the error of the scope that uses it.
DeviceFunction ReplicaDeviceSetter(ReplicaDeviceSetterOptions options);

}  // namespace millrace
