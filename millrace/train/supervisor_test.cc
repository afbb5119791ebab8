#include "millrace/train/supervisor.h"

#include "millrace/train/global_step.h"
#include "millrace/train/summary.h"
#include "millrace/train/train_testing.h"

namespace millrace {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

class SupervisorTest : public testing::Test {
 protected:
  const TempDirectory dir_ = TempDirectory::Make("supervisor_test").value();
};

TEST_F(SupervisorTest, SavesAndWritesBesideTheLoopAndGoesOnNextTime) {
  for (const int first : {0, 5}) {
    CountingModel model;
    ScalarSummary(model.scope, "w_now", model.w);
    auto supervisor = Supervisor::Create(model.scope, {.logdir = dir_.path(),
                                                       .save_summaries_every = absl::Milliseconds(5),
                                                       .save_checkpoint_every = absl::Milliseconds(5)})
                          .value();
    ManagedSession managed = supervisor->Managed().value();
    EXPECT_EQ(ReadGlobalStep(managed.get(), model.global_step).value(), first);
    for (int i = 0; i < 5; ++i) ASSERT_EQ(managed->Run(model.train), absl::OkStatus());
    const std::string expected = absl::StrCat(dir_.File("model.ckpt"), "-", first + 5);
    EXPECT_TRUE(Await([&] { return LatestCheckpoint(dir_.path()).value() == expected; }));
    EXPECT_FALSE(supervisor->ShouldStop());
    EXPECT_EQ(managed.Close(), absl::OkStatus());
    EXPECT_TRUE(supervisor->ShouldStop());
  }
  EXPECT_THAT(FileSystem::Posix()->List(dir_.path()).value(), Contains(HasSubstr("events.out.tfevents")));
}

TEST_F(SupervisorTest, AServicesErrorEndsTheTrainingOnce) {
  CountingModel model;
  auto supervisor = Supervisor::Create(model.scope).value();
  ManagedSession managed = supervisor->Managed().value();
  ASSERT_EQ(supervisor->Loop("watch", absl::ZeroDuration(), [] { return DataLoss("the disk is gone"); }),
            absl::OkStatus());
  EXPECT_TRUE(supervisor->WaitForStop());
  EXPECT_TRUE(supervisor->ShouldStop());
  EXPECT_EQ(managed.Close(), DataLoss("watch: the disk is gone"));
  EXPECT_EQ(managed.Close(), absl::OkStatus());
  EXPECT_EQ(supervisor->Stop(), absl::OkStatus());
}

TEST_F(SupervisorTest, TheLoopsErrorIsReturnedUnlessItIsTheEndOfTheInput) {
  for (const Status& status : {Internal("broken"), OutOfRange("the end")}) {
    CountingModel model;
    auto supervisor = Supervisor::Create(model.scope).value();
    ManagedSession managed = supervisor->Managed().value();
    EXPECT_EQ(managed.Close(status), absl::IsOutOfRange(status) ? absl::OkStatus() : status);
  }
}

TEST_F(SupervisorTest, StartsTheQueueRunnersOfTheGraph) {
  CountingModel model;
  const Output queue = ops::FIFOQueueV2(model.scope, {DType::kFloat}, {.capacity = 2});
  AddQueueRunner(model.scope, QueueRunner({.enqueue_ops = {ops::QueueEnqueueV2(model.scope, queue, {1.0f})}}));
  const Output next = ops::QueueDequeueV2(model.scope, queue, {DType::kFloat})[0];
  auto supervisor = Supervisor::Create(model.scope).value();
  ManagedSession managed = supervisor->Managed().value();
  for (int i = 0; i < 10; ++i) EXPECT_EQ(managed->Run({next}).value()[0].scalar<float>(), 1);
  EXPECT_EQ(managed.Close(), absl::OkStatus());
}

TEST_F(SupervisorTest, AWorkerWaitsForTheChief) {
  auto servers = StartServers({{"ps", 1}, {"worker", 2}});
  CountingModel of_chief = CountingModel::OfWorker(0), of_worker = CountingModel::OfWorker(1);
  VirtualClock clock;
  std::vector<absl::Duration> pauses;
  SupervisorOptions impatient{.is_chief = false, .max_wait = absl::Seconds(100)};
  impatient.wait = {.clock = &clock,
                    .pause =
                        [&](absl::Duration time) {
                          pauses.push_back(time);
                          clock.Advance(time);
                        },
                    .max_poll_interval = absl::Seconds(2)};
  auto waiting = Supervisor::Create(of_worker.scope, impatient).value();
  EXPECT_THAT(waiting->PrepareOrWaitForSession({.target = servers[2]->target()}).status().message(),
              HasSubstr("worker/0 (the chief) to initialise w, global_step"));
  EXPECT_EQ(*std::max_element(pauses.begin(), pauses.end()), absl::Seconds(2));
  auto chief = Supervisor::Create(of_chief.scope).value();
  ManagedSession ready = chief->Managed({.target = servers[1]->target()}).value();
  ManagedSession managed = waiting->Managed({.target = servers[2]->target()}).value();
  EXPECT_EQ(managed->Run(of_worker.train), absl::OkStatus());
  EXPECT_EQ(managed.Close(), absl::OkStatus());
  EXPECT_EQ(ready.Close(), absl::OkStatus());
}

TEST_F(SupervisorTest, ComputedSummariesAreWrittenAtTheGlobalStep) {
  CountingModel model;
  const Output summary = ScalarSummary(model.scope, "w_now", model.w);
  auto supervisor =
      Supervisor::Create(model.scope, {.logdir = dir_.path(), .save_summaries_every = absl::ZeroDuration()}).value();
  ManagedSession managed = supervisor->Managed().value();
  const Tensor value = managed->Run({summary}).value()[0];
  EXPECT_EQ(supervisor->SummaryComputed(managed.get(), value), absl::OkStatus());
  EXPECT_EQ(supervisor->SummaryComputed(managed.get(), value, 17), absl::OkStatus());
  EXPECT_EQ(managed.Close(), absl::OkStatus());
}

TEST_F(SupervisorTest, MisuseIsNamed) {
  CountingModel model;
  auto supervisor = Supervisor::Create(model.scope, {.is_chief = false}).value();
  EXPECT_THAT(supervisor->StartStandardServices(nullptr).message(), HasSubstr("only the chief"));
  EXPECT_THAT(supervisor->SummaryComputed(nullptr, Tensor()).message(), HasSubstr("with a logdir"));
  EXPECT_THAT(Supervisor::Create(model.scope).value()->StartStandardServices(nullptr).message(),
              HasSubstr("need a logdir"));
  EXPECT_TRUE(
      absl::IsInvalidArgument(Supervisor::Create(model.scope, {.save_checkpoint_every = -absl::Seconds(1)}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(Supervisor::Create(model.scope, {.checkpoint_basename = ""}).status()));
}

}  // namespace
}  // namespace millrace
