// Variables on the parameter servers, everything else on the worker that builds the graph.
//
//   Scope root = Scope::NewRoot().WithDeviceFunction(
//       ReplicaDeviceSetter({.ps_tasks = 2, .worker_device = "/job:worker/task:0"}));
//   Variable w(root, ...);              // /job:ps/task:0
//   Variable b(root, ...);              // /job:ps/task:1
//   Output y = ops::MatMul(root, x, w);  // /job:worker/task:0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "millrace/api/scope.h"

namespace millrace {

// The parameter server for a node, from 0.
using PsStrategy = std::function<int(const Node& node)>;

// One after another.
PsStrategy RoundRobinStrategy(int ps_tasks);
// The server with the least load so far; the first of several. `load` is by default VariableBytes.
PsStrategy GreedyStrategy(int ps_tasks, std::function<int64_t(const Node& node)> load = nullptr);
// The size of a variable by its attrs `shape` and `dtype`; an unknown dimension counts as 1.
int64_t VariableBytes(const Node& variable);

// What holds state that workers share: variables, and tables that can change.
const std::vector<std::string>& StandardPsOps();

struct ReplicaDeviceSetterOptions {
  int ps_tasks = 0;  // 0: the device function changes nothing
  std::string ps_device = "/job:ps";
  std::string worker_device = "/job:worker";
  // What a scope within says is kept and the rest filled in; otherwise a node that asks for any device is left alone.
  bool merge_devices = true;
  std::vector<std::string> ps_ops = StandardPsOps();
  PsStrategy ps_strategy = nullptr;  // null: round robin
};

// A node of ps_ops gets ps_device with the task that the strategy gives, unless it asks for another job; all others get worker_device. Every copy of
// the result goes on in the same sequence, so that replicas of a graph built in the same order agree. Malformed device names are the error of
// the scope that uses them.
DeviceFunction ReplicaDeviceSetter(ReplicaDeviceSetterOptions options);

}  // namespace millrace
