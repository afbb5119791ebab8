// Jobs of several workers for tests, each in a thread of its own with its own server.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "millrace/cluster/server_testing.h"
#include "millrace/strategy/strategy.h"

namespace millrace {

inline std::vector<TaskConfig> WorkerConfigs(int workers) {
  const std::vector<int> ports = FreePorts(static_cast<size_t>(workers));
  std::map<std::string, std::vector<std::string>> jobs;
  for (const int port : ports) jobs["worker"].push_back(absl::StrCat("localhost:", port));
  const ClusterSpec cluster = ClusterSpec::Of(jobs).value();
  std::vector<TaskConfig> configs;
  for (int i = 0; i < workers; ++i) configs.push_back({.cluster = cluster, .task = {"worker", i}});
  return configs;
}

// Calls `body` for each worker and returns what each returned.
template <typename Result>
std::vector<Result> OnWorkers(int workers, const StrategyOptions& options,
                              const std::function<Result(Strategy& strategy)>& body) {
  const std::vector<TaskConfig> configs = WorkerConfigs(workers);
  std::vector<Result> results(static_cast<size_t>(workers));
  std::vector<std::thread> threads;
  for (int i = 0; i < workers; ++i) {
    threads.emplace_back([&, i] {
      StatusOr<std::unique_ptr<Strategy>> strategy = MultiWorkerMirroredStrategy(configs[i], options);
      EXPECT_TRUE(strategy.ok()) << strategy.status();
      if (strategy.ok()) results[i] = body(**strategy);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

}  // namespace millrace
