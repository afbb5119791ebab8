#include "millrace/strategy/worker_group.h"

#include <functional>
#include <latch>
#include <map>
#include <thread>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "millrace/cluster/server_testing.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A chief and workers, each in a thread of its own.
class WorkerGroupTest : public ::testing::Test {
 protected:
  using Body = std::function<void(WorkerGroup& group)>;

  explicit WorkerGroupTest(int workers = 2) {
    const std::vector<int> ports = FreePorts(static_cast<size_t>(workers) + 2);
    std::map<std::string, std::vector<std::string>> jobs;
    jobs["chief"] = {absl::StrCat("localhost:", ports[0])};
    jobs["ps"] = {absl::StrCat("localhost:", ports[1])};
    for (int i = 0; i < workers; ++i) jobs["worker"].push_back(absl::StrCat("localhost:", ports[i + 2]));
    cluster_ = ClusterSpec::Of(jobs).value();
  }

  TaskConfig Config(const std::string& job, int index) const { return {.cluster = cluster_, .task = {job, index}}; }

  // No group ends before all have done their work, unless `apart`.
  void OnAll(const Body& body, bool apart = false) {
    std::vector<std::thread> threads;
    std::latch ready(3);
    for (const TaskConfig& config : {Config("chief", 0), Config("worker", 0), Config("worker", 1)}) {
      threads.emplace_back([&, config] {
        const auto group = WorkerGroup::Start(config, {.timeout = absl::Minutes(1)});
        EXPECT_TRUE(group.ok()) << group.status();
        if (group.ok()) body(**group);
        if (!apart) ready.arrive_and_wait();
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  ClusterSpec cluster_;
};

TEST_F(WorkerGroupTest, TheChiefIsRankZeroAndAllGetTheSame) {
  OnAll([](WorkerGroup& group) {
    EXPECT_EQ(group.size(), 3);
    EXPECT_EQ(group.local_size(), 3);
    EXPECT_EQ(group.local_rank(), group.rank());
    EXPECT_EQ(group.rank() == 0, group.server()->task().job == "chief");
    const auto rank = static_cast<float>(group.rank());

    Tensor sum = Tensor::Of<float>({rank, 10});
    const Tensor shared = sum;
    ASSERT_TRUE(group.AllReduce(&sum, collective::Reduction::kSum).ok());
    EXPECT_THAT(sum.flat<float>(), ElementsAre(3, 30));
    EXPECT_THAT(shared.flat<float>(), ElementsAre(rank, 10)) << "memory of another tensor has changed";

    Tensor first = Tensor::Scalar<int32_t>(7 + group.rank());
    ASSERT_TRUE(group.Broadcast(&first, 2).ok());
    EXPECT_EQ(first.scalar<int32_t>(), 9);

    // Rank r has r rows.
    Tensor rows(DType::kInt64, {group.rank(), 2});
    for (int64_t& value : rows.flat<int64_t>()) value = group.rank();
    const auto all = group.AllGather(rows);
    ASSERT_TRUE(all.ok()) << all.status();
    EXPECT_EQ(all->shape(), Shape({3, 2}));
    EXPECT_THAT(all->flat<int64_t>(), ElementsAre(1, 1, 2, 2, 2, 2));
    EXPECT_TRUE(group.Barrier().ok());
    EXPECT_TRUE(group.Leave().ok());
  });
}

TEST_F(WorkerGroupTest, RowsOfAnotherSizeAreNamedOnEveryWorkerWhichGoOn) {
  OnAll([](WorkerGroup& group) {
    const auto gathered = group.AllGather(Tensor(DType::kFloat, {2, group.rank() == 1 ? 5 : 4}));
    EXPECT_EQ(gathered.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(gathered.status().message()), HasSubstr("5 on rank 1"));
    EXPECT_TRUE(group.Barrier().ok());
    EXPECT_TRUE(group.Leave().ok());
  });
}

TEST_F(WorkerGroupTest, ATensorOfAnotherSizeIsNamedOnEveryWorker) {
  OnAll([](WorkerGroup& group) {
    Tensor tensor(DType::kFloat, {group.rank() == 2 ? 3 : 4});
    const Status status = group.AllReduce(&tensor, collective::Reduction::kSum);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("rank 2 (/job:worker"));
    // Once it has failed, it stays so.
    EXPECT_EQ(group.Barrier(), status);
  });
}

TEST_F(WorkerGroupTest, AWorkerThatLeavesEarlyIsNamed) {
  OnAll(
      [](WorkerGroup& group) {
        Status status = group.Barrier();
        if (group.rank() == 1) {
          EXPECT_TRUE(status.ok()) << status;
          return;
        }
        // Without Leave, it may be gone before the others have noticed the end of the barrier.
        Tensor tensor = Tensor::Scalar<float>(1);
        if (status.ok()) status = group.AllReduce(&tensor, collective::Reduction::kSum);
        EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
        EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1 (/job:worker"));
      },
      /*apart=*/true);
}

TEST_F(WorkerGroupTest, OnlyWorkersBelongToIt) {
  const Status status = WorkerGroup::Start(Config("ps", 0)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("/job:ps"));
}

TEST(WorkerGroup, WithoutAClusterIsAGroupOfOne) {
  const auto group = WorkerGroup::Start({}).value();
  EXPECT_EQ(group->rank(), 0);
  EXPECT_EQ(group->size(), 1);
  EXPECT_EQ(group->server(), nullptr);
  Tensor tensor = Tensor::Of<float>({1, 2});
  EXPECT_TRUE(group->AllReduce(&tensor).ok());
  EXPECT_THAT(tensor.flat<float>(), ElementsAre(1, 2));
  EXPECT_TRUE(group->AllGather(tensor).ok());
  EXPECT_TRUE(group->Broadcast(&tensor).ok());
  EXPECT_TRUE(group->Leave().ok());
}

TEST(WorkerGroup, BadArgumentsTroubleNobodyElse) {
  const auto group = WorkerGroup::Start({}).value();
  Tensor text = Tensor::Scalar("text"), complex(DType::kComplex64, {1}), nothing;
  EXPECT_EQ(group->AllReduce(&text).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(group->AllReduce(&nothing).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(group->AllReduce(&complex, collective::Reduction::kMax).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(group->Broadcast(&complex, 1).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(group->AllGather(Tensor::Scalar<float>(1)).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace millrace
