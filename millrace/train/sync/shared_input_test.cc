// Workers that share their input through a queue on a parameter server: one fills it, each element goes to one of the
// others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <thread>

#include "millrace/api/api_testing.h"
#include "millrace/cluster/server_testing.h"

namespace millrace {
namespace {

// What every worker builds: the queue is one and the same by its shared name and device.
struct SharedInput {
  explicit SharedInput(const Server& server) : scope(Scope::NewRoot()) {
    const Scope ps = scope.WithDevice("/job:ps/task:0");
    const Output queue = ops::FIFOQueueV2(
        ps, {DType::kInt64}, {.shapes = {PartialShape(std::vector<int64_t>{})}, .capacity = 8, .shared_name = "input"});
    value = ops::Placeholder(scope.WithDevice(absl::StrCat("/job:worker/task:", server.task().index)), DType::kInt64,
                             {.shape = PartialShape(std::vector<int64_t>{})});
    put = ops::QueueEnqueueV2(ps, queue, {value});
    take = ops::QueueDequeueV2(ps, queue, {DType::kInt64})[0];
    close = ops::QueueCloseV2(ps, queue);
    session = std::make_unique<ClientSession>(ClientSession::Create(scope, {.target = server.target()}).value());
  }

  Scope scope;
  Output value, take;
  Operation put, close;
  std::unique_ptr<ClientSession> session;
};

TEST(SharedInputTest, EachElementGoesToOneWorkerAndAllLearnOfTheEnd) {
  constexpr int64_t kElements = 100;
  const auto servers = StartServers({{"ps", 1}, {"worker", 3}});
  std::vector<std::vector<int64_t>> taken(2);
  std::vector<std::thread> takers;
  for (int i : {0, 1}) {
    takers.emplace_back([&, i] {
      SharedInput input(*servers[2 + i]);
      while (true) {
        const StatusOr<Tensors> got = input.session->Run({input.take});
        if (!got.ok()) {
          EXPECT_EQ(got.status().code(), absl::StatusCode::kOutOfRange) << got.status();
          return;
        }
        taken[i].push_back((*got)[0].scalar<int64_t>());
      }
    });
  }
  SharedInput filler(*servers[1]);
  for (int64_t i = 0; i < kElements; ++i)
    ASSERT_TRUE(filler.session->Run({{filler.value, Tensor::Scalar<int64_t>(i)}}, {}, {filler.put}).ok());
  ASSERT_EQ(filler.session->Run(filler.close), absl::OkStatus());
  for (std::thread& taker : takers) taker.join();
  std::vector<int64_t> all = taken[0], expected(kElements);
  all.insert(all.end(), taken[1].begin(), taken[1].end());
  std::sort(all.begin(), all.end());
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(all, expected);
}

}  // namespace
}  // namespace millrace
