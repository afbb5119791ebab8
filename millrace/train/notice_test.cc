// What a training session does when it is given a notice of preemption.
#include <fstream>
#include <functional>
#include <thread>

#include "millrace/train/supervisor.h"
#include "millrace/train/train_testing.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;

// Calls a function in the middle of every run.
class InTheMiddle : public SessionRunHook {
 public:
  explicit InTheMiddle(std::function<void()> call) : call_(std::move(call)) {}
  Status AfterRun(SessionRunContext*, const SessionRunValues&) override {
    call_();
    return absl::OkStatus();
  }

 private:
  const std::function<void()> call_;
};

class NoticeOfSession : public testing::Test {
 protected:
  std::unique_ptr<MonitoredSession> Train(const CountingModel& model, MonitoredTrainingSessionOptions options = {}) {
    options.checkpoint_dir = dir_.path();
    options.save_checkpoint_every_steps = 1000;
    options.notices = &board_;
    StatusOr<std::unique_ptr<MonitoredSession>> session = MonitoredTrainingSession(model.scope, std::move(options));
    EXPECT_EQ(session.status(), absl::OkStatus());
    return session.ok() ? *std::move(session) : nullptr;
  }
  std::string Latest() { return LatestCheckpoint(dir_.path()).value(); }
  void WaitForStop(const MonitoredSession& session) {
    // The reaction has ended when the coordinator is told to stop.
    EXPECT_TRUE(session.coordinator()->WaitForStop(absl::Seconds(60)));
  }

  const TempDirectory dir_ = TempDirectory::Make("notice_test").value();
  NoticeBoard board_;
};

TEST_F(NoticeOfSession, BetweenRunsTheChiefSavesAtOnceAndLaterRunsAreRefused) {
  CountingModel model;
  auto session = Train(model);
  for (int i = 0; i < 7; ++i) ASSERT_EQ(session->Run(model.train), absl::OkStatus());
  EXPECT_FALSE(session->ShouldStop());
  board_.Give({});
  WaitForStop(*session);
  EXPECT_TRUE(session->ShouldStop());
  EXPECT_EQ(Latest(), dir_.File("model.ckpt-7"));
  const Status refused = session->Run(model.train);
  EXPECT_EQ(refused.code(), absl::StatusCode::kCancelled);
  EXPECT_THAT(refused.message(), HasSubstr("SIGTERM"));
  EXPECT_EQ(session->Close(), absl::OkStatus());
  EXPECT_EQ(Latest(), dir_.File("model.ckpt-7"));
}

TEST_F(NoticeOfSession, TheRunInHandEndsAndIsSaved) {
  CountingModel model;
  int runs = 0;
  const auto hook = std::make_shared<InTheMiddle>([&] {
    if (++runs == 5) board_.Give({});
  });
  auto session = Train(model, {.hooks = {hook}});
  while (!session->ShouldStop()) {
    const Status status = session->Run(model.train);
    // The next run may have been begun before the notice has shut the gate.
    if (!status.ok()) {
      ASSERT_EQ(status.code(), absl::StatusCode::kCancelled);
    }
  }
  WaitForStop(*session);
  EXPECT_GE(runs, 5);
  EXPECT_EQ(Latest(), absl::StrCat(dir_.File("model.ckpt-"), runs));
  EXPECT_EQ(session->Close(), absl::OkStatus());
}

TEST_F(NoticeOfSession, ATrainingContinuesFromItsCheckpointWithEveryStep) {
  int64_t done = 0;
  for (int life = 0; life < 3; ++life) {
    NoticeBoard board;
    CountingModel model;
    auto session =
        MonitoredTrainingSession(
            model.scope, {.checkpoint_dir = dir_.path(), .save_checkpoint_every_steps = 1000, .notices = &board})
            .value();
    for (int i = 0; i < 3; ++i, ++done) ASSERT_EQ(session->Run(model.train), absl::OkStatus());
    EXPECT_EQ(session->Run({model.w}).value()[0].scalar<float>(), static_cast<float>(done));
    board.Give({});
    WaitForStop(*session);
  }
  EXPECT_EQ(Latest(), dir_.File("model.ckpt-9"));
}

TEST_F(NoticeOfSession, ANoticeThatWasGivenBeforeRefusesTheSession) {
  CountingModel model;
  board_.Give({.signal = SIGUSR1});
  const auto session =
      MonitoredTrainingSession(model.scope, {.checkpoint_dir = dir_.path(), .notices = &board_}).status();
  EXPECT_EQ(session.code(), absl::StatusCode::kCancelled);
  EXPECT_THAT(session.message(), HasSubstr("SIGUSR1"));
  EXPECT_EQ(Latest(), "");
}

TEST_F(NoticeOfSession, ANoticeEndsTheWaitForTheChief) {
  const auto servers = StartServers({{"ps", 1}, {"worker", 1}});
  const CountingModel model = CountingModel::OfWorker(0);
  std::thread giver;
  // A worker that waits for a chief that never comes.
  const auto session = MonitoredTrainingSession(model.scope, {.master = servers[1]->target(),
                                                              .is_chief = false,
                                                              .wait = {.give_up = [&]() -> Status {
                                                                if (!giver.joinable())
                                                                  giver = std::thread([&] { board_.Give({}); });
                                                                return absl::OkStatus();
                                                              }},
                                                              .notices = &board_});
  giver.join();
  EXPECT_EQ(session.status().code(), absl::StatusCode::kCancelled);
  EXPECT_THAT(session.status().message(), HasSubstr("SIGTERM"));
}

TEST_F(NoticeOfSession, ANoticeDuringTheLastSaveLetsItEnd) {
  class GivesNotice : public CheckpointSaverListener {
   public:
    explicit GivesNotice(NoticeBoard* board) : board_(board) {}
    Status BeforeSave(ClientSession*, int64_t step) override {
      if (step > 0) board_->Give({});
      return absl::OkStatus();
    }

   private:
    NoticeBoard* const board_;
  };
  CountingModel model;
  auto session = Train(model, {.saving_listeners = {std::make_shared<GivesNotice>(&board_)}});
  for (int i = 0; i < 4; ++i) ASSERT_EQ(session->Run(model.train), absl::OkStatus());
  EXPECT_EQ(session->Close(), absl::OkStatus());
  EXPECT_EQ(Latest(), dir_.File("model.ckpt-4"));
}

TEST_F(NoticeOfSession, AFailedSaveIsAnErrorAndTheCheckpointBeforeStays) {
  class DiskIsFull : public CheckpointSaverListener {
   public:
    Status BeforeSave(ClientSession*, int64_t step) override {
      return step == 0 ? absl::OkStatus() : ResourceExhausted("no space left on device");
    }
  };
  CountingModel model;
  auto session = Train(model, {.saving_listeners = {std::make_shared<DiskIsFull>()}});
  ASSERT_EQ(session->Run(model.train), absl::OkStatus());
  testing::internal::CaptureStderr();
  board_.Give({});
  WaitForStop(*session);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("stopped by SIGTERM at step 1; the checkpoint is not whole: no space left on device"));
  EXPECT_EQ(session->Close().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Latest(), dir_.File("model.ckpt-0"));
}

// A hook of a training whose steps wait for each other, as SyncReplicasOptimizer's.
class Together : public SessionRunHook {
 public:
  explicit Together(bool leaves_no_trace, std::function<void()> before_run = nullptr)
      : leaves_no_trace_(leaves_no_trace), before_run_(std::move(before_run)) {}
  StatusOr<SessionRunArgs> BeforeRun(SessionRunContext*) override {
    if (before_run_ != nullptr) before_run_();
    return SessionRunArgs();
  }
  bool StepsTogether() const override { return true; }
  bool CancelledStepLeavesNoTrace() const override { return leaves_no_trace_; }

 private:
  const bool leaves_no_trace_;
  const std::function<void()> before_run_;
};

// A step that waits for ever, as one whose peers have ended.
struct WaitingModel : CountingModel {
  WaitingModel() {
    const Output queue = ops::FIFOQueueV2(scope, {DType::kFloat});
    waits = ops::QueueDequeueV2(scope, queue, {DType::kFloat})[0];
  }
  Output waits;
};

TEST_F(NoticeOfSession, AStepThatWaitsForOthersThatHaveEndedIsCancelledAndSavedOnlyIfItLeftNoTrace) {
  for (const bool leaves_no_trace : {true, false}) {
    NoticeBoard board;
    WaitingModel model;
    int runs = 0;
    const auto hook = std::make_shared<Together>(leaves_no_trace, [&] {
      if (++runs == 4) board.Give({.grace = absl::Milliseconds(100)});
    });
    const std::string folder = dir_.File(leaves_no_trace ? "a" : "b");
    auto session =
        MonitoredTrainingSession(
            model.scope,
            {.checkpoint_dir = folder, .hooks = {hook}, .save_checkpoint_every_steps = 1000, .notices = &board})
            .value();
    for (int i = 0; i < 3; ++i) ASSERT_EQ(session->Run(model.train), absl::OkStatus());
    const Status status = session->Run({model.waits}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kCancelled) << status;
    EXPECT_THAT(status.message(), HasSubstr("stopped by SIGTERM"));
    WaitForStop(*session);
    EXPECT_EQ(session->Close(), absl::OkStatus());
    EXPECT_EQ(LatestCheckpoint(folder).value(), folder + (leaves_no_trace ? "/model.ckpt-3" : "/model.ckpt-0"));
  }
}

TEST_F(NoticeOfSession, AWorkerThatFollowsTheChiefGoesOnUntilItsPatienceEnds) {
  CountingModel model;
  auto session = Train(model, {.hooks = {std::make_shared<Together>(true)}});
  // As a worker that is not the chief.
  CountingModel other;
  auto follower =
      MonitoredSession::Create(other.scope, ChiefSessionCreator({}),
                               {.hooks = {std::make_shared<Together>(true)}, .is_chief = false, .notices = &board_})
          .value();
  board_.Give({.grace = absl::Hours(1)});
  WaitForStop(*session);
  EXPECT_TRUE(session->ShouldStop());
  EXPECT_FALSE(follower->ShouldStop());
  EXPECT_EQ(follower->Run(other.train), absl::OkStatus());
  EXPECT_EQ(follower->Close(), absl::OkStatus());
}

TEST_F(NoticeOfSession, EndsTheLoopOfASupervisorWhoseChiefSaves) {
  for (const int first : {0, 3}) {
    NoticeBoard board;
    CountingModel model;
    auto supervisor = Supervisor::Create(model.scope, {.logdir = dir_.path(), .notices = &board}).value();
    ManagedSession managed = supervisor->Managed().value();
    for (int i = 0; !supervisor->ShouldStop(); ++i) {
      if (i < 3) {
        ASSERT_EQ(managed->Run(model.train), absl::OkStatus());
      }
      if (i == 3) board.Give({});
      if (i >= 3) supervisor->WaitForStop();
    }
    EXPECT_EQ(managed.Close(), absl::OkStatus());
    EXPECT_EQ(Latest(), absl::StrCat(dir_.File("model.ckpt"), "-", first + 3));
  }
}

TEST_F(NoticeOfSession, AFailedSaveOfASupervisorIsAnError) {
  std::ofstream(dir_.File("file")) << "in the way of a directory";
  CountingModel model;
  auto supervisor = Supervisor::Create(model.scope, {.logdir = dir_.path(),
                                                     .checkpoint_basename = "file/model.ckpt",
                                                     .save_checkpoint_every = absl::InfiniteDuration(),
                                                     .notices = &board_})
                        .value();
  ManagedSession managed = supervisor->Managed().value();
  board_.Give({});
  EXPECT_TRUE(supervisor->WaitForStop());
  testing::internal::CaptureStderr();
  const Status status = managed.Close();
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("stopped by SIGTERM at step 0; the checkpoint is not whole"));
  EXPECT_THAT(status.message(), HasSubstr(dir_.File("file")));
}

TEST_F(NoticeOfSession, EndsASupervisorsWaitForTheChief) {
  const auto servers = StartServers({{"ps", 1}, {"worker", 1}});
  const CountingModel model = CountingModel::OfWorker(0);
  auto supervisor = Supervisor::Create(model.scope, {.is_chief = false,
                                                     .wait = {.give_up = [&]() -> Status {
                                                       board_.Give({});
                                                       return absl::OkStatus();
                                                     }},
                                                     .notices = &board_})
                        .value();
  const Status status = supervisor->Managed({.target = servers[1]->target()}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled) << status;
  EXPECT_THAT(status.message(), HasSubstr("SIGTERM"));
}

}  // namespace
}  // namespace millrace
