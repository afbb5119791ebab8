// Runs the workers of a synchronous training as threads of one process, each with its own server, graph and session.
// For tests only.
#pragma once

#include <cmath>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "millrace/api/api_testing.h"
#include "millrace/cluster/server_testing.h"
#include "millrace/cluster/worker/worker.h"
#include "millrace/train/sync/sync_replicas_optimizer.h"

namespace millrace {

// 64 examples of 4 numbers and a target. Every call returns the same.
inline std::pair<Tensor, Tensor> SomeExamples() {
  std::vector<float> x, y;
  for (int i = 0; i < 64; ++i) {
    float sum = 0;
    for (int j = 0; j < 4; ++j) {
      x.push_back(std::sin(0.7f * static_cast<float>(4 * i + j)));
      sum += x.back() * static_cast<float>(j + 1);
    }
    y.push_back(std::tanh(sum));
  }
  Tensor xs(DType::kFloat, Shape({64, 4})), ys(DType::kFloat, Shape({64, 1}));
  std::copy(x.begin(), x.end(), xs.flat<float>().begin());
  std::copy(y.begin(), y.end(), ys.flat<float>().begin());
  return {xs, ys};
}

// A small network, variables on the ps, trained synchronously.
struct SyncWorker {
  // If `open` is false, no session is created.
  SyncWorker(const Server& server, int index, int num_ps, const SyncReplicasOptions& options, bool open = true)
      : scope(Scope::NewRoot().WithDeviceFunction(
            ReplicaDeviceSetter({.ps_tasks = num_ps, .worker_device = absl::StrCat("/job:worker/task:", index)}))),
        sync(std::make_unique<optimizers::Momentum>(optimizers::MomentumOptions{.learning_rate = 0.1}), options) {
    scope.SetRandomSeed(7);
    x = ops::Placeholder(scope.WithOpName("x"), DType::kFloat, {.shape = {-1, 4}});
    y = ops::Placeholder(scope.WithOpName("y"), DType::kFloat, {.shape = {-1, 1}});
    const Output hidden = layers::Dense(scope, x, 8, {.activation = ops::Tanh});
    loss = losses::MeanSquaredError(scope, y, layers::Dense(scope, hidden, 1));
    global_step = GlobalStep(scope);
    train = sync.Minimize(scope, loss, {.global_step = global_step});
    init = GlobalVariablesInitializer(scope);
    step_now = global_step.Read(scope);
    if (open)
      session = std::make_unique<ClientSession>(ClientSession::Create(scope, {.target = server.target()}).value());
  }

  // May run concurrently with steps: it adds no nodes.
  int64_t Step() { return session->Run({step_now}).value()[0].scalar<int64_t>(); }
  int64_t NumDropped() { return session->Run({sync.num_dropped()}).value()[0].scalar<int64_t>(); }

  Scope scope;
  SyncReplicasOptimizer sync;
  Output x, y, loss, step_now;
  Var global_step;
  Operation train, init;
  std::unique_ptr<ClientSession> session;
};

// Runs the update repeatedly, as the chief's queue runner does, until Stop or the end of its session.
class ChiefUpdates {
 public:
  explicit ChiefUpdates(SyncWorker* chief)
      : thread_([chief, this] {
          while (true) {
            Tensors results;
            const Status status = chief->session->Run({.cancellation = &cancellation_}, {}, {},
                                                      {chief->sync.update_op()}, &results, nullptr);
            if (!status.ok()) {
              if (!cancellation_.IsCancelled()) ADD_FAILURE() << status;
              return;
            }
          }
        }) {}
  ~ChiefUpdates() { Stop(); }
  void Stop() {
    cancellation_.StartCancel();
    if (thread_.joinable()) thread_.join();
  }

 private:
  CancellationManager cancellation_;
  std::thread thread_;
};

}  // namespace millrace
