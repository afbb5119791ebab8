#include "millrace/ops/data_flow/step_gate.h"

#include <algorithm>
#include <optional>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "millrace/runtime/wait_registry.h"
#include "tests/ops/data_flow_session.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Workers that run steps one at a time, in an order that the test chooses.
class Workers {
 public:
  Workers(int64_t count, int64_t staleness)
      : gate_(MakeRef<StepGate>(
            StepGate::Options{.name = "gate", .num_workers = count, .staleness = staleness, .clock = &clock})),
        node_(b_.AddNode("NoOp", {}, {}, "pass")),
        running_(count, true),
        finished_(count) {
    step_.waits = &waits;
    KernelContextAccess(ctx_).Set(node_, nullptr, nullptr, &step_);
  }

  CallingOp op() const { return CallingOp(ctx_); }
  // `worker`, which is at work, finishes a step; it is at work again once it may begin another.
  void Finish(int64_t worker) {
    running_[worker] = false;
    ++finished_[worker];
    gate_->Pass(op(), worker, [this, worker](StatusOr<int64_t> steps) {
      ASSERT_TRUE(steps.ok()) << steps.status();
      running_[worker] = true;
      if (on_begin) on_begin(worker, *steps);
    });
  }
  bool runs(int64_t worker) const { return running_[worker]; }
  StepGate& gate() { return *gate_; }

  VirtualClock clock;
  WaitRegistry waits{&clock};
  std::function<void(int64_t worker, int64_t steps)> on_begin;

 private:
  Graph graph_;
  GraphBuilder b_{&graph_};
  RefPtr<StepGate> gate_;
  Node* const node_;
  StepContext step_;
  KernelContext ctx_;
  std::vector<bool> running_;
  std::vector<int64_t> finished_;
};

TEST(StepGateTest, WithoutStalenessAllGoInStep) {
  Workers workers(3, 0);
  workers.Finish(0);
  workers.Finish(2);
  EXPECT_FALSE(workers.runs(0));
  EXPECT_FALSE(workers.runs(2));
  workers.Finish(1);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(workers.runs(i));
}

TEST(StepGateTest, AWorkerAheadWaitsAndSaysForWhom) {
  Workers workers(2, 2);
  workers.Finish(0);
  workers.Finish(0);
  EXPECT_TRUE(workers.runs(0));
  workers.Finish(0);
  EXPECT_FALSE(workers.runs(0));
  ASSERT_EQ(workers.waits.List().size(), 1);
  EXPECT_EQ(workers.waits.List()[0].what, "worker 1 (0 of 1 steps) to come within 2 steps at step gate 'gate'");
  workers.Finish(1);
  EXPECT_TRUE(workers.runs(0));
  EXPECT_TRUE(workers.waits.List().empty());
}

TEST(StepGateTest, WithoutABoundNobodyWaits) {
  Workers workers(2, -1);
  for (int i = 0; i < 100; ++i) workers.Finish(0);
  EXPECT_TRUE(workers.runs(0));
}

TEST(StepGateTest, AWorkerThatLeftOrFellSilentHoldsNobodyBack) {
  Workers workers(3, 0);
  workers.Finish(0);
  ASSERT_EQ(workers.gate().Leave(workers.op(), 1), absl::OkStatus());
  EXPECT_FALSE(workers.runs(0));
  workers.clock.Advance(absl::Seconds(6));
  EXPECT_THAT(workers.gate().KeepAlive(workers.op(), 0, absl::Seconds(10)).value(), ElementsAre(true, false, true));
  workers.clock.Advance(absl::Seconds(6));
  EXPECT_THAT(workers.gate().KeepAlive(workers.op(), 0, absl::Seconds(10)).value(), ElementsAre(true, false, false));
  EXPECT_TRUE(workers.runs(0));
  EXPECT_THAT(workers.gate().steps(), ElementsAre(1, -1, -1));
  workers.Finish(0);
  workers.Finish(0);
  // One that is back is waited for again, from where the others are.
  EXPECT_EQ(workers.gate().Join(workers.op(), 2).value(), 3);
  workers.Finish(0);
  EXPECT_FALSE(workers.runs(0));
  workers.Finish(2);
  EXPECT_TRUE(workers.runs(0));
  // So is one that was given up and is not dead after all.
  workers.Finish(1);
  EXPECT_THAT(workers.gate().steps(), ElementsAre(4, 5, 4));
}

// Whoever begins a step is at most `staleness` ahead of everybody who takes part, and somebody can always go on.
TEST(StepGateTest, NobodyIsEverFurtherAheadThanTheStaleness) {
  for (int seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const int64_t count = 1 + random() % 6, staleness = random() % 5;
    Workers workers(count, staleness);
    std::vector<bool> alive(count, true);
    int64_t begun = 0;
    workers.on_begin = [&](int64_t worker, int64_t steps) {
      ++begun;
      const std::vector<int64_t> all = workers.gate().steps();
      for (int64_t other : all) {
        if (other >= 0) {
          ASSERT_LE(steps - other, staleness) << "worker " << worker;
        }
      }
    };
    for (int i = 0; i < 500; ++i) {
      std::vector<int64_t> able;
      for (int64_t w = 0; w < count; ++w) {
        if (alive[w] && workers.runs(w)) able.push_back(w);
      }
      const int64_t live = std::count(alive.begin(), alive.end(), true);
      ASSERT_TRUE(!able.empty() || live == 0) << "everybody waits";
      const int64_t chosen = random() % count;
      if (random() % 40 == 0 && alive[chosen] && workers.runs(chosen)) {
        alive[chosen] = false;  // at work, never heard of again
        ASSERT_EQ(workers.gate().Leave(workers.op(), chosen), absl::OkStatus());
      } else if (random() % 10 == 0 && !alive[chosen]) {
        alive[chosen] = true;
        ASSERT_TRUE(workers.gate().Join(workers.op(), chosen).ok());
      } else if (!able.empty()) {
        workers.Finish(able[random() % able.size()]);
      }
    }
    EXPECT_GT(begun, 0);
    for (int64_t w = 0; w < count; ++w) ASSERT_EQ(workers.gate().Leave(workers.op(), w), absl::OkStatus());
  }
}

class StepGateOpsTest : public DataFlowTest {};

TEST_F(StepGateOpsTest, MistakesAreTold) {
  const AttrList two = {{"num_workers", 2}, {"staleness", 1}, {"shared_name", "g"}};
  const Endpoint gate = b_.Op("MillraceStepGate", {}, two, "gate");
  const Endpoint other =
      b_.Op("MillraceStepGate", {}, {{"num_workers", 3}, {"staleness", 1}, {"shared_name", "g"}}, "other");
  const auto worker = [&](int64_t index) { return b_.Const(Tensor::Scalar<int64_t>(index)); };
  Node* const pass = b_.AddNode("MillraceStepGatePass", {gate, worker(2)});
  Node* const join = b_.AddNode("MillraceStepGateJoin", {other, worker(0)});
  Node* const alive =
      b_.AddNode("MillraceStepGateKeepAlive", {gate, worker(0), b_.Const(Tensor::Scalar<double>(std::nan("")))});
  Node* const steps = b_.AddNode("MillraceStepGateSteps", {gate});
  Open();
  EXPECT_THAT(Values<int64_t>(steps), ElementsAre(0, 0));
  EXPECT_THAT(Do(pass).message(), HasSubstr("has no worker 2: it was made for 2"));
  EXPECT_THAT(Do(join).message(), HasSubstr("is of 2 workers and staleness 1, not of 3 and 1"));
  EXPECT_THAT(Do(alive).message(), HasSubstr("lease_seconds must be a positive number"));
}

}  // namespace
}  // namespace millrace
