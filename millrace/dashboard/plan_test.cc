#include "millrace/dashboard/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace millrace::dashboard {
namespace {

using testing::HasSubstr;

// Workers that think for 10 ms and need the ps for 1 ms of processor time.
MeasuredRun PsBound() {
  return {.ps = 1, .workers = 4, .steps_per_second = 330, .ps_seconds = 0.0029, .worker_seconds = 0.001, .ps_cores = 1};
}

TEST(PlanTest, ThePredictionForTheMeasuredRunIsTheMeasurement) {
  for (const bool synchronous : {false, true}) {
    MeasuredRun run = PsBound();
    run.synchronous = synchronous;
    run.steps_per_second = 200;
    const double predicted = Predict(run, {.ps = 1, .workers = 4}).steps_per_second;
    EXPECT_NEAR(predicted, synchronous ? 50 : 200, 0.5);
  }
}

TEST(PlanTest, AFullPsBindsAndAnotherOneHelps) {
  const MeasuredRun run = PsBound();
  const Prediction more_workers = Predict(run, {.ps = 1, .workers = 8});
  EXPECT_EQ(more_workers.binds, "ps_cores");
  EXPECT_LT(more_workers.steps_per_second, 350);
  EXPECT_GT(Predict(run, {.ps = 2, .workers = 8}).steps_per_second, 1.5 * more_workers.steps_per_second);
}

TEST(PlanTest, ASlowerLinkBindsAtItsBandwidth) {
  MeasuredRun run = {.ps = 1,
                     .workers = 2,
                     .steps_per_second = 100,
                     .ps_seconds = 0.0001,
                     .worker_seconds = 0.01,
                     .bytes_out = 1e6,
                     .bytes_in = 1e6,
                     .ps_cores = 2};
  const Prediction slow = Predict(run, {.ps = 1, .workers = 8, .link = 10e6});
  EXPECT_EQ(slow.binds, "ps_link");
  EXPECT_NEAR(slow.steps_per_second, 10, 1);  // 1 MB in each direction
  EXPECT_EQ(Predict(run, {.ps = 1, .workers = 1, .link = 10e9}).binds, "workers");
}

TEST(PlanTest, WorkersThatShareAHostDoNotMultiply) {
  MeasuredRun run = {.ps = 1,
                     .workers = 2,
                     .steps_per_second = 190,
                     .ps_seconds = 0.001,
                     .worker_seconds = 0.009,
                     .ps_cores = 2,
                     .host_cores = 2};
  const Prediction shared = Predict(run, {.ps = 1, .workers = 8});
  EXPECT_LT(shared.steps_per_second, 215);
  EXPECT_EQ(shared.binds, "host_cores");
  EXPECT_GT(Predict(run, {.ps = 1, .workers = 8, .own_hosts = true}).steps_per_second, 500);
}

TEST(PlanTest, AutoTakesTheFewestPsThatSuffice) {
  EXPECT_GE(ChoosePs(PsBound(), 16, 16), 4);
  MeasuredRun idle = PsBound();
  idle.ps_seconds = 1e-6;
  EXPECT_EQ(ChoosePs(idle, 4, 4), 1);
}

TEST(PlanTest, TheRatesOfStatusAreRead) {
  const char* text = R"({"tasks": [
    {"task": "/job:ps/replica:0/task:0", "address": "h:1", "cpu": {"cores": 2},
     "peers": [{"bytes_sent": 300, "bytes_received": 100}],
     "rates": {"seconds": 1, "busy_cores": 0.5, "parts_per_second": 100, "gigabytes_per_second": 0.4, "share_of_ceiling": 0.1}},
    {"task": "/job:worker/replica:0/task:0", "address": "g:1", "cpu": {"cores": 2},
     "rates": {"seconds": 1, "busy_cores": 1.5, "steps_per_second": 100}}]})";
  const MeasuredRun run = MeasureRun(RatesFromJson(text).value()).value();
  EXPECT_EQ(run.ps, 1);
  EXPECT_EQ(run.workers, 1);
  EXPECT_NEAR(run.bytes_out, 3e6, 1);
  EXPECT_NEAR(run.bytes_in, 1e6, 1);
  EXPECT_NEAR(run.link, 4e9, 1);
  EXPECT_NEAR(run.ps_seconds, 0.005, 1e-9);
  EXPECT_EQ(run.host_cores, 0);
}

TEST(PlanTest, WhatIsMissingIsNamed) {
  EXPECT_THAT(RatesFromJson("[1,2]").status().message(), HasSubstr("--rates --json"));
  EXPECT_THAT(RatesFromJson("{\"tasks\": [3, {\"rates\": 7}]}").status().message(), HasSubstr("--rates --json"));
  EXPECT_THAT(MeasureRun({}).status().message(), HasSubstr("no ps task"));
  const TaskRate ps = {.task = "/job:ps/replica:0/task:0"};
  EXPECT_THAT(MeasureRun({ps}).status().message(), HasSubstr("no worker"));
  EXPECT_TRUE(PlanJson({}).is_null());
}

}  // namespace
}  // namespace millrace::dashboard
