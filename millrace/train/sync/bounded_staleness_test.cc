#include "millrace/train/sync/bounded_staleness.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>

#include "millrace/api/api_testing.h"
#include "millrace/cluster/server_testing.h"
#include "millrace/cluster/worker/worker.h"

namespace millrace {
namespace {

using testing::HasSubstr;

struct BoundedWorker {
  BoundedWorker(const Server& server, const BoundedStalenessOptions& options)
      : scope(Scope::NewRoot().WithDeviceFunction(ReplicaDeviceSetter(
            {.ps_tasks = 1, .worker_device = absl::StrCat("/job:worker/task:", options.worker_index)}))),
        bound(options) {
    Var w(scope, "w", 0.0f);
    const Output loss = ops::Square(scope, w - 3.0f);
    train =
        optimizers::GradientDescent({.learning_rate = 0.01}).Minimize(scope, loss, {.global_step = GlobalStep(scope)});
    train = bound.Bound(scope, train);
    init = GlobalVariablesInitializer(scope);
    session = std::make_unique<ClientSession>(ClientSession::Create(scope, {.target = server.target()}).value());
  }
  std::vector<int64_t> Steps() {
    const Tensor steps = session->Run({bound.steps()}).value()[0];
    return {steps.flat<int64_t>().begin(), steps.flat<int64_t>().end()};
  }

  Scope scope;
  BoundedStaleness bound;
  Operation train, init;
  std::unique_ptr<ClientSession> session;
};

// On servers: a worker that begins a step is at most `staleness` steps ahead of the slowest.
TEST(BoundedStalenessTest, NoWorkerBeginsAStepTooFarAhead) {
  constexpr int kWorkers = 3, kSteps = 60;
  const auto servers = StartServers({{"ps", 1}, {"worker", kWorkers}});
  for (const int staleness : {0, 2}) {
    std::vector<std::unique_ptr<BoundedWorker>> workers;
    for (int i = 0; i < kWorkers; ++i) {
      workers.push_back(std::make_unique<BoundedWorker>(
          *servers[1 + i], BoundedStalenessOptions{.num_workers = kWorkers,
                                                   .worker_index = i,
                                                   .staleness = staleness,
                                                   .name = absl::StrCat("bound", staleness)}));
    }
    ASSERT_EQ(workers[0]->session->Run(workers[0]->init), absl::OkStatus());
    // Steps that are finished for certain: they only grow, so what is read after a worker began is no less than what
    // was true then.
    std::atomic<int64_t> finished[kWorkers] = {};
    std::vector<std::thread> threads;
    for (int i = 0; i < kWorkers; ++i) {
      threads.emplace_back([&, i] {
        std::mt19937 random(100 * staleness + i);
        for (int step = 1; step <= kSteps; ++step) {
          for (int spin = random() % 4; spin > 0; --spin) std::this_thread::yield();
          ASSERT_EQ(workers[i]->session->Run(workers[i]->train), absl::OkStatus());
          finished[i].store(step);
          const std::vector<int64_t> all = workers[i]->Steps();
          for (const int64_t other : all) {
            if (other >= 0) {
              ASSERT_LE(step - other, staleness);
            }
          }
        }
        ASSERT_EQ(workers[i]->session->Run(workers[i]->bound.leave_op()), absl::OkStatus());
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const auto& count : finished) EXPECT_EQ(count.load(), kSteps);
  }
}

TEST(BoundedStalenessTest, ADeadWorkerIsNamedAndNoLongerWaitedForAfterItsLease) {
  const auto servers = StartServers({{"ps", 1}, {"worker", 2}});
  BoundedWorker one(*servers[1], {.num_workers = 2, .worker_index = 0, .lease = absl::Milliseconds(50)});
  ASSERT_EQ(one.session->Run(one.init), absl::OkStatus());
  ASSERT_EQ(one.session->Run(one.bound.join_op()), absl::OkStatus());
  std::thread waiting([&] { ASSERT_EQ(one.session->Run(one.train), absl::OkStatus()); });
  const auto waits = [&] {
    std::string text;
    for (const Wait& wait : servers[0]->worker()->task().waits()->List()) absl::StrAppend(&text, wait.what, "\n");
    return text;
  };
  while (waits().find("worker 1 (0 of 1 steps) to come within 0 steps at step gate 'bounded_staleness'") ==
         std::string::npos)
    std::this_thread::yield();
  // What the hook does periodically.
  while (one.Steps()[1] >= 0) ASSERT_EQ(one.session->Run(one.bound.keep_alive_op()), absl::OkStatus());
  waiting.join();
}

TEST(BoundedStalenessTest, MistakesAreTold) {
  const auto error = [](const BoundedStalenessOptions& options, bool train = true) {
    Scope scope = Scope::NewRoot();
    BoundedStaleness bound(options);
    bound.Bound(scope, train ? Group(scope, {}) : Operation());
    return std::string(scope.status().message());
  };
  EXPECT_EQ(error({}), "");
  EXPECT_EQ(error({.staleness = std::nullopt}), "");
  EXPECT_THAT(error({.num_workers = 0}), HasSubstr("num_workers must be at least 1, but is 0"));
  EXPECT_THAT(error({.num_workers = 2, .worker_index = 2}), HasSubstr("worker_index must be from 0 to 1, but is 2"));
  EXPECT_THAT(error({.staleness = -3}), HasSubstr("staleness must not be negative, but is -3"));
  EXPECT_THAT(error({.lease = absl::ZeroDuration()}), HasSubstr("lease must be positive"));
  EXPECT_THAT(error({}, false), HasSubstr("no training op"));
}

}  // namespace
}  // namespace millrace
