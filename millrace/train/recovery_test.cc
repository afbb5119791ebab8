// Servers that are lost in the middle of a training, and come back.
#include <atomic>
#include <cstdlib>
#include <thread>
#include <utility>

#include "millrace/runtime/wait_registry.h"
#include "millrace/train/global_step.h"
#include "millrace/train/progress.h"
#include "millrace/train/train_testing.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;

// A cluster whose tasks can be stopped and started again where they were.
class Tasks {
 public:
  explicit Tasks(const std::map<std::string, int>& jobs)
      : servers_(StartServers(jobs)), cluster_(servers_[0]->cluster()) {
    for (auto& server : servers_)
      cluster_.SetAddress(server->task(), server->cluster().Address(server->task()).value());
  }
  Server& operator[](const TaskId& task) { return *Find(task); }
  void Stop(const TaskId& task) { Find(task).reset(); }
  void Start(const TaskId& task) {
    for (auto& server : servers_) {
      if (server == nullptr) server = Server::Start(cluster_, task.job, task.index).value();
    }
  }

 private:
  std::unique_ptr<Server>& Find(const TaskId& task) {
    for (auto& server : servers_) {
      if (server != nullptr && server->task() == task) return server;
    }
    ADD_FAILURE() << "no " << task.name();
    return servers_[0];
  }
  std::vector<std::unique_ptr<Server>> servers_;
  ClusterSpec cluster_;
};

const TaskId kPs = {"ps", 0}, kChief = {"worker", 0}, kWorker = {"worker", 1};

MonitoredTrainingSessionOptions ChiefOptions(Tasks& tasks, const std::string& folder) {
  return {.master = tasks[kChief].target(),
          .checkpoint_dir = folder,
          .save_checkpoint_every_steps = 10,
          .max_wait = absl::Seconds(60)};
}

float ValueOfW(MonitoredSession* session, const CountingModel& model) {
  return session->raw_session()->Run({model.w}).value()[0].scalar<float>();
}

TEST(Recovery, ARestartedPsGetsItsVariablesFromTheCheckpoint) {
  Tasks tasks({{"ps", 1}, {"worker", 1}});
  const TempDirectory folder = TempDirectory::Make("recovery_test").value();
  CountingModel model = CountingModel::OfWorker(0);
  auto recorder = std::make_shared<RecordingHook>();
  MonitoredTrainingSessionOptions options = ChiefOptions(tasks, folder.path());
  options.hooks = {recorder, StopAt(40)};
  auto session = MonitoredTrainingSession(model.scope, options).value();
  for (int i = 0; i < 15; ++i) ASSERT_EQ(session->Run(model.train), absl::OkStatus());
  EXPECT_TRUE(Await([&] { return StepOfCheckpoint(LatestCheckpoint(folder.path()).value()) == 10; }));
  tasks.Stop(kPs);
  tasks.Start(kPs);
  // Steps 11 to 15 were made after the last checkpoint.
  ASSERT_EQ(session->Run(model.train), absl::OkStatus());
  EXPECT_EQ(session->sessions_made(), 2);
  EXPECT_EQ(ValueOfW(session.get(), model), 11);
  while (!session->ShouldStop()) ASSERT_EQ(session->Run(model.train), absl::OkStatus());
  EXPECT_EQ(ValueOfW(session.get(), model), 40);
  EXPECT_EQ(ReadGlobalStep(session->raw_session(), model.global_step).value(), 40);
  EXPECT_EQ(session->Close(), absl::OkStatus());
  EXPECT_EQ(std::count(recorder->seen.begin(), recorder->seen.end(), "created"), 2);
  EXPECT_EQ(std::count(recorder->seen.begin(), recorder->seen.end(), "begin"), 1);
}

TEST(Recovery, WithoutCheckpointsARestartedPsIsInitialisedAnew) {
  Tasks tasks({{"ps", 1}, {"worker", 1}});
  CountingModel model = CountingModel::OfWorker(0);
  auto session =
      MonitoredTrainingSession(model.scope, {.master = tasks[kChief].target(), .max_wait = absl::Seconds(60)}).value();
  for (int i = 0; i < 5; ++i) ASSERT_EQ(session->Run(model.train), absl::OkStatus());
  tasks.Stop(kPs);
  tasks.Start(kPs);
  ASSERT_EQ(session->Run(model.train), absl::OkStatus());
  EXPECT_EQ(ValueOfW(session.get(), model), 1);
}

TEST(Recovery, AllWorkersGoOnWhenThePsIsBack) {
  Tasks tasks({{"ps", 1}, {"worker", 2}});
  const TempDirectory folder = TempDirectory::Make("recovery_test").value();
  CountingModel of_chief = CountingModel::OfWorker(0), of_worker = CountingModel::OfWorker(1);
  std::atomic<int64_t> seen = 0;
  std::atomic<int> at_work = 0;
  const auto train = [&](CountingModel& model, MonitoredTrainingSessionOptions options) -> Status {
    options.hooks = {StopAt(300)};
    MR_ASSIGN_OR_RETURN(std::unique_ptr<MonitoredSession> session, MonitoredTrainingSession(model.scope, options));
    MR_ASSIGN_OR_RETURN(const MonitoredStep step, session->MakeStep({}, {model.global_step}, {model.train}));
    bool first = true;
    while (!session->ShouldStop()) {
      MR_ASSIGN_OR_RETURN(const Tensors results, step());
      if (std::exchange(first, false)) {
        ++at_work;
        EXPECT_TRUE(Await([&] { return at_work == 2; }));  // whoever is first could be done before the other begins
      }
      seen = results[0].scalar<int64_t>();
      Notification().WaitFor(absl::Milliseconds(2));
    }
    if (session->sessions_made() < 2) return Internal("the session was not made anew");
    return session->Close();
  };
  Status chief, worker;
  std::thread chief_thread([&] { chief = train(of_chief, ChiefOptions(tasks, folder.path())); });
  std::thread worker_thread([&] {
    worker = train(of_worker, {.master = tasks[kWorker].target(), .is_chief = false, .max_wait = absl::Seconds(60)});
  });
  EXPECT_TRUE(Await([&] { return seen >= 50; }));
  tasks.Stop(kPs);
  tasks.Start(kPs);
  chief_thread.join();
  worker_thread.join();
  EXPECT_EQ(chief, absl::OkStatus());
  EXPECT_EQ(worker, absl::OkStatus());
}

TEST(Recovery, AnIdleWorkerNoticesThatThePsIsAnotherProcess) {
  Tasks tasks({{"ps", 1}, {"worker", 2}});
  CountingModel of_chief = CountingModel::OfWorker(0), of_worker = CountingModel::OfWorker(1);
  auto chief = MonitoredTrainingSession(of_chief.scope, {.master = tasks[kChief].target()}).value();
  auto worker =
      MonitoredTrainingSession(of_worker.scope,
                               {.master = tasks[kWorker].target(), .is_chief = false, .max_wait = absl::Seconds(60)})
          .value();
  ASSERT_EQ(worker->Run(of_worker.train), absl::OkStatus());
  tasks.Stop(kPs);
  tasks.Start(kPs);
  // The chief has not noticed yet: the variables have no values.
  Status status;
  std::thread running([&] { status = worker->Run(of_worker.train); });
  EXPECT_TRUE(Await([&] {
    const auto waits = WaitsOfServer(tasks[kWorker].target())->List();
    return !waits.empty() && waits[0].what == "worker/0 (the chief) to initialise w, global_step";
  }));
  ASSERT_EQ(chief->Run(of_chief.train), absl::OkStatus());
  running.join();
  EXPECT_EQ(status, absl::OkStatus());
  EXPECT_EQ(worker->sessions_made(), 2);
}

TEST(Recovery, AChiefThatIsBackContinuesFromTheValuesOfItsTrainingOrRestores) {
  Tasks tasks({{"ps", 1}, {"worker", 1}});
  const TempDirectory folder = TempDirectory::Make("recovery_test").value();
  const auto train = [&](int steps, std::optional<bool> keep_values) {
    CountingModel model = CountingModel::OfWorker(0);
    MonitoredTrainingSessionOptions options = ChiefOptions(tasks, folder.path());
    options.keep_values = keep_values;
    auto session = MonitoredTrainingSession(model.scope, options).value();
    for (int i = 0; i < steps; ++i) EXPECT_EQ(session->Run(model.train), absl::OkStatus());
    const float w = ValueOfW(session.get(), model);
    EXPECT_TRUE(Await([&] { return StepOfCheckpoint(LatestCheckpoint(folder.path()).value()) >= 10; }));
    // As if it were killed: the server's end loses the session, and nothing is saved at the end.
    tasks.Stop(kChief);
    session.reset();
    tasks.Start(kChief);
    return w;
  };
  EXPECT_EQ(train(15, false), 15);
  EXPECT_EQ(train(0, false), 10);
  EXPECT_EQ(train(3, true), 13);
  EXPECT_EQ(train(0, true), 13);
  EXPECT_EQ(train(1, std::nullopt), 14);
  EXPECT_EQ(train(0, std::nullopt), 14);
}

TEST(Recovery, ValuesThatAnotherTrainingLeftAreInitialized) {
  Tasks tasks({{"ps", 1}, {"worker", 1}});
  for (int i = 0; i < 2; ++i) {
    const TempDirectory folder = TempDirectory::Make("recovery_test").value();
    CountingModel model = CountingModel::OfWorker(0);
    auto session = MonitoredTrainingSession(model.scope, ChiefOptions(tasks, folder.path())).value();
    EXPECT_EQ(session->Run(model.train), absl::OkStatus());
    EXPECT_EQ(ValueOfW(session.get(), model), 1);
  }
}

TEST(Recovery, AChiefThatTheLauncherRestartedBeforeItsFirstCheckpointContinues) {
  Tasks tasks({{"ps", 1}, {"worker", 1}});
  const TempDirectory folder = TempDirectory::Make("recovery_test").value();
  const auto train = [&](int steps, const char* restarts) {
    setenv(kRestartsVariable, restarts, 1);
    CountingModel model = CountingModel::OfWorker(0);
    MonitoredTrainingSessionOptions options = ChiefOptions(tasks, folder.path());
    options.save_checkpoint_every_steps = 0;
    auto session = MonitoredTrainingSession(model.scope, options).value();
    unsetenv(kRestartsVariable);
    for (int i = 0; i < steps; ++i) EXPECT_EQ(session->Run(model.train), absl::OkStatus());
    return ValueOfW(session.get(), model);
  };
  EXPECT_EQ(train(3, "0"), 3);
  EXPECT_EQ(train(2, "1"), 5);
  EXPECT_EQ(train(1, "0"), 1) << "a new job, on servers that another one has left";
}

TEST(Recovery, ACheckpointThatIsNewerThanTheValuesIsRestored) {
  Tasks tasks({{"ps", 1}, {"worker", 1}});
  const TempDirectory folder = TempDirectory::Make("recovery_test").value();
  const auto train = [&](const std::string& to, int steps) {
    CountingModel model = CountingModel::OfWorker(0);
    auto session = MonitoredTrainingSession(model.scope, ChiefOptions(tasks, to)).value();
    for (int i = 0; i < steps; ++i) EXPECT_EQ(session->Run(model.train), absl::OkStatus());
    const float w = ValueOfW(session.get(), model);
    EXPECT_EQ(session->Close(), absl::OkStatus());
    return w;
  };
  EXPECT_EQ(train(folder.path(), 20), 20);
  const TempDirectory other = TempDirectory::Make("recovery_test").value();
  EXPECT_EQ(train(other.path(), 3), 3);
  EXPECT_EQ(train(folder.path(), 1), 21);
}

TEST(Recovery, APsThatDoesNotComeBackEndsTheTrainingAndIsNamed) {
  Tasks tasks({{"ps", 1}, {"worker", 1}});
  CountingModel model = CountingModel::OfWorker(0);
  auto session =
      MonitoredTrainingSession(model.scope, {.master = tasks[kChief].target(), .max_wait = absl::Milliseconds(1500)})
          .value();
  ASSERT_EQ(session->Run(model.train), absl::OkStatus());
  tasks.Stop(kPs);
  const Status status = session->Run(model.train);
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("/job:ps/replica:0/task:0"));
  EXPECT_TRUE(session->ShouldStop());
  EXPECT_EQ(session->Close(), absl::OkStatus());
}

TEST(Recovery, AStopEndsTheWaitForALostSession) {
  Tasks tasks({{"ps", 1}, {"worker", 2}});
  CountingModel of_chief = CountingModel::OfWorker(0), of_worker = CountingModel::OfWorker(1);
  auto chief = MonitoredTrainingSession(of_chief.scope, {.master = tasks[kChief].target()}).value();
  auto worker =
      MonitoredTrainingSession(of_worker.scope, {.master = tasks[kWorker].target(), .is_chief = false}).value();
  tasks.Stop(kPs);
  tasks.Start(kPs);
  Status status;
  std::thread running([&] { status = worker->Run(of_worker.train); });
  EXPECT_TRUE(Await([&] { return !WaitsOfServer(tasks[kWorker].target())->List().empty(); }));
  worker->RequestStop();
  running.join();
  EXPECT_TRUE(absl::IsCancelled(status)) << status;
  EXPECT_TRUE(worker->ShouldStop());
}

}  // namespace
}  // namespace millrace
