#include "millrace/train/session_manager.h"

#include <thread>

#include "millrace/cluster/client/local_servers.h"
#include "millrace/cluster/watch/cluster_status.h"
#include "millrace/train/train_testing.h"

namespace millrace {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

SessionManagerOptions OptionsOf(const Scaffold& scaffold, WaitSettings wait = {}) {
  return {.ready_op = scaffold.ready_op,
          .ready_for_local_init_op = scaffold.ready_for_local_init_op,
          .local_init_op = scaffold.local_init_op,
          .local_init_feed = scaffold.local_init_feed,
          .wait = std::move(wait)};
}

Scaffold Finalized(const Scope& scope, Scaffold scaffold = {}) {
  EXPECT_EQ(scaffold.Finalize(scope, {.saver = false}), absl::OkStatus());
  return scaffold;
}

TEST(SessionManager, AChiefInitialisesGlobalThenLocalVariables) {
  CountingModel model;
  const Var local(model.scope, "seen", model.w + 2.0f, {.local = true});
  EXPECT_EQ(GlobalVariables(model.scope).size(), 2);
  ASSERT_EQ(LocalVariables(model.scope).size(), 1);
  bool called = false;
  Scaffold scaffold = Finalized(model.scope);
  const SessionManager manager(model.scope, OptionsOf(scaffold));
  PreparedSession prepared = manager
                                 .PrepareSession({.init_op = scaffold.init_op,
                                                  .init_fn =
                                                      [&](ClientSession* session) {
                                                        called = true;
                                                        return session->Run(model.w.Assign(model.scope, 5.0f));
                                                      }})
                                 .value();
  EXPECT_TRUE(called);
  EXPECT_EQ(prepared.step, 0);
  EXPECT_EQ(prepared.session->Run({local}).value()[0].scalar<float>(), 7);
}

TEST(SessionManager, InitFeedsReachTheInitOp) {
  CountingModel model;
  const Output size = ops::Placeholder(model.scope, DType::kFloat, {.shape = Shape({})});
  const Var v(model.scope, "v", size);
  Scaffold scaffold = Finalized(model.scope);
  PreparedSession prepared =
      SessionManager(model.scope, OptionsOf(scaffold))
          .PrepareSession({.init_op = scaffold.init_op, .init_feed = {{size, Tensor::Scalar(3.0f)}}})
          .value();
  EXPECT_EQ(prepared.session->Run({v}).value()[0].scalar<float>(), 3);
}

TEST(SessionManager, ALocalVariableIsAtTheWorkerWhateverTheSetterSaysOfVariables) {
  CountingModel model = CountingModel::OfWorker(1);
  const Var local(model.scope, "local", 1.0f, {.local = true}), copy(model.scope, "copy", model.w, {.local = true});
  EXPECT_THAT(model.w.handle().node()->requested_device(), HasSubstr("/job:ps"));
  EXPECT_THAT(local.handle().node()->requested_device(), HasSubstr("/job:worker/task:1"));
  EXPECT_THAT(copy.handle().node()->requested_device(), HasSubstr("/job:worker/task:1"));
  EXPECT_FALSE(local.trainable());
  EXPECT_TRUE(local.local());
}

TEST(SessionManager, NothingToInitialiseWithIsMisuse) {
  CountingModel model;
  EXPECT_TRUE(absl::IsInvalidArgument(SessionManager(model.scope, {}).PrepareSession({}).status()));
  EXPECT_THAT((Scaffold{.ready_op = model.w}.Finalize(model.scope, {.saver = false}).message()),
              HasSubstr("must return strings"));
}

TEST(SessionManager, RecoverSaysThatNothingIsInitialised) {
  CountingModel model;
  Scaffold scaffold = Finalized(model.scope);
  EXPECT_FALSE(SessionManager(model.scope, OptionsOf(scaffold)).RecoverSession({}).value().initialized);
}

TEST(SessionManager, ValuesAreKeptOnlyWhenAskedFor) {
  auto servers = StartServers({{"worker", 1}});
  CountingModel model;
  Scaffold scaffold = Finalized(model.scope);
  const SessionManager manager(model.scope, OptionsOf(scaffold));
  PrepareOptions options{.session = {.target = servers[0]->target()}, .init_op = scaffold.init_op};
  PreparedSession first = manager.PrepareSession(options).value();
  ASSERT_EQ(first.session->Run(model.train), absl::OkStatus());
  options.keep_values = true;
  EXPECT_EQ(manager.PrepareSession(options).value().step, 1);
  EXPECT_TRUE(manager.RecoverSession({.session = options.session}).value().initialized);
  options.keep_values = false;
  EXPECT_EQ(manager.PrepareSession(options).value().step, 0);
}

// The waits in the status of the server in this process.
std::vector<std::string> WaitsOf(const Server& server) {
  std::vector<std::string> waits;
  for (const Wait& wait : FindLocalServer(server.target())->waits->List()) waits.push_back(wait.what);
  return waits;
}

TEST(SessionManager, AWorkerWaitsForTheChiefAndSaysForWhat) {
  auto servers = StartServers({{"ps", 1}, {"worker", 2}});
  CountingModel chief = CountingModel::OfWorker(0), worker = CountingModel::OfWorker(1);
  Scaffold of_chief = Finalized(chief.scope), of_worker = Finalized(worker.scope);
  StatusOr<PreparedSession> got = Internal("not yet");
  std::thread waiting([&] {
    got = SessionManager(worker.scope, OptionsOf(of_worker))
              .WaitForSession({.target = servers[2]->target()}, absl::Seconds(60));
  });
  EXPECT_TRUE(Await([&] { return !WaitsOf(*servers[2]).empty(); }));
  EXPECT_THAT(WaitsOf(*servers[2]), ElementsAre("worker/0 (the chief) to initialise w, global_step"));
  PreparedSession prepared =
      SessionManager(chief.scope, OptionsOf(of_chief))
          .PrepareSession({.session = {.target = servers[1]->target()}, .init_op = of_chief.init_op})
          .value();
  waiting.join();
  ASSERT_EQ(got.status(), absl::OkStatus());
  EXPECT_EQ(got->step, 0);
  EXPECT_TRUE(WaitsOf(*servers[2]).empty());
}

TEST(SessionManager, TheDeadlineOfAWorkerNamesTheVariables) {
  auto servers = StartServers({{"ps", 1}, {"worker", 2}});
  CountingModel model = CountingModel::OfWorker(1);
  Scaffold scaffold = Finalized(model.scope);
  VirtualClock clock;
  std::vector<absl::Duration> pauses;
  const WaitSettings wait{.clock = &clock, .pause = [&](absl::Duration time) {
                            pauses.push_back(time);
                            clock.Advance(time);
                          }};
  const Status status = SessionManager(model.scope, OptionsOf(scaffold, wait))
                            .WaitForSession({.target = servers[2]->target()}, absl::Seconds(30))
                            .status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("30s"), HasSubstr("worker/0 (the chief) to initialise w, global_step")));
  // Soon at first, then once a second.
  EXPECT_EQ(pauses.front(), absl::Milliseconds(20));
  EXPECT_LE(*std::max_element(pauses.begin(), pauses.end()), absl::Seconds(1));
  EXPECT_LT(pauses.size(), 80);
}

TEST(SessionManager, AClusterWithAChiefJobNamesIt) {
  auto servers = StartServers({{"chief", 1}, {"worker", 1}});
  CountingModel model(Scope::NewRoot().WithDevice("/job:chief"));
  Scaffold scaffold = Finalized(model.scope);
  VirtualClock clock;
  const WaitSettings wait{.clock = &clock, .pause = [&](absl::Duration time) { clock.Advance(time); }};
  const Status status = SessionManager(model.scope, OptionsOf(scaffold, wait))
                            .WaitForSession({.target = servers[1]->target()}, absl::Seconds(30))
                            .status();
  EXPECT_THAT(status.message(), HasSubstr("chief/0 (the chief)")) << status;
}

TEST(SessionManager, TasksThatTheGraphDoesNotNameAreNotWaitedFor) {
  const std::vector<int> ports = FreePorts(3);
  const auto at = [&](int i) { return absl::StrCat("localhost:", ports[i]); };
  const ClusterSpec cluster = ClusterSpec::Of({{"ps", {at(0)}}, {"worker", {at(1), at(2)}}}).value();
  auto ps = Server::Start(cluster, "ps", 0).value(), worker = Server::Start(cluster, "worker", 0).value();
  CountingModel model = CountingModel::OfWorker(0);
  Scaffold scaffold = Finalized(model.scope);
  const SessionManager manager(model.scope, OptionsOf(scaffold));
  EXPECT_TRUE(
      manager
          .PrepareSession(
              {.session = {.target = worker->target()}, .init_op = scaffold.init_op, .max_wait = absl::Seconds(30)})
          .ok());
  // One that it names is, and the error says who is missing.
  ps.reset();
  const Status status = manager
                            .PrepareSession({.session = {.target = worker->target()},
                                             .init_op = scaffold.init_op,
                                             .max_wait = absl::Milliseconds(1500)})
                            .status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("/job:ps/replica:0/task:0"));
}

TEST(SessionManager, AServerThatIsNotThereYetIsWaitedFor) {
  VirtualClock clock;
  std::unique_ptr<Server> server;
  const std::vector<int> ports = FreePorts(1);
  const ClusterSpec cluster = ClusterSpec::Of({{"worker", {absl::StrCat("localhost:", ports[0])}}}).value();
  CountingModel model;
  Scaffold scaffold = Finalized(model.scope);
  int pauses = 0;
  const WaitSettings wait{.clock = &clock, .pause = [&](absl::Duration) {
                            if (++pauses == 3) server = Server::Start(cluster, "worker", 0).value();
                          }};
  const SessionOptions session{.target = absl::StrCat("grpc://localhost:", ports[0])};
  EXPECT_EQ(SessionManager(model.scope, OptionsOf(scaffold, wait))
                .PrepareSession({.session = session, .init_op = scaffold.init_op})
                .status(),
            absl::OkStatus());
  EXPECT_GE(pauses, 3);
}

TEST(SessionManager, GivingUpEndsTheWait) {
  CountingModel model;
  Scaffold scaffold = Finalized(model.scope);
  const WaitSettings wait{.give_up = [] { return Cancelled("a stop was asked for"); }};
  const Status status = SessionManager(model.scope, OptionsOf(scaffold, wait)).WaitForSession({}).status();
  EXPECT_TRUE(absl::IsCancelled(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("to initialise w"));
}

}  // namespace
}  // namespace millrace
