#include "millrace/train/hooks/profiler_hook.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "millrace/api/operators.h"
#include "millrace/api/variable.h"
#include "millrace/cluster/server_testing.h"
#include "millrace/cluster/watch/measure_clock.h"
#include "millrace/net/grpc/grpc_transport.h"
#include "millrace/train/timeline/merge_timelines.h"
#include "millrace/train/timeline/profile_variables.h"
#include "millrace/train/timeline/timeline.h"
#include "nlohmann/json.hpp"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class SkewedClock : public Clock {
 public:
  explicit SkewedClock(absl::Duration skew) : skew_(skew) {}
  absl::Time Now() override { return Clock::Real()->Now() + skew_; }

 private:
  const absl::Duration skew_;
};

// A program whose step adds to the global step, run with a hook as a MonitoredSession does.
class HookedProgram {
 public:
  explicit HookedProgram(SessionRunHook* hook, const SessionOptions& options = {}) : hook_(hook) {
    EXPECT_EQ(hook_->Begin(scope_), absl::OkStatus());
    session_.emplace(ClientSession::Create(scope_, options).value());
    EXPECT_EQ(session_->Run(step_.initializer()), absl::OkStatus());
    EXPECT_EQ(hook_->AfterCreateSession(&*session_, nullptr), absl::OkStatus());
  }
  // True when the hook asked for a trace.
  bool Run() {
    SessionRunContext context{.session = &*session_};
    const SessionRunArgs args = hook_->BeforeRun(&context).value();
    SessionRunValues values;
    RunMetadata metadata;
    EXPECT_EQ(session_->Run({.trace = args.trace}, args.feeds, args.fetches, {add_}, &values.results, &metadata),
              absl::OkStatus());
    if (args.trace) values.metadata = &metadata;
    EXPECT_EQ(hook_->AfterRun(&context, values), absl::OkStatus());
    return args.trace;
  }
  ClientSession& session() { return *session_; }

  Scope scope_ = Scope::NewRoot();
  Var step_ = GlobalStep(scope_);
  Operation add_ = step_.AssignAdd(scope_, int64_t{1});

 private:
  SessionRunHook* const hook_;
  std::optional<ClientSession> session_;
};

std::vector<int64_t> Traced(ProfilerHookOptions options, int runs) {
  const TempDirectory directory = TempDirectory::Make("profile").value();
  options.output_dir = directory.path();
  const auto hook = ProfilerHook::Make(options).value();
  HookedProgram program(hook.get());
  std::vector<int64_t> traced;
  for (int i = 0; i < runs; ++i) {
    if (program.Run()) traced.push_back(i);
  }
  EXPECT_EQ(hook->traced(), static_cast<int64_t>(traced.size()));
  EXPECT_EQ(FileSystem::Posix()->List(directory.path()).value().size(), traced.size());
  return traced;
}

TEST(ProfilerHook, TracesTheStepsThatItIsToldTo) {
  EXPECT_THAT(Traced({.steps = "3"}, 8), ElementsAre(3));
  EXPECT_THAT(Traced({.steps = "2:5"}, 8), ElementsAre(2, 3, 4));
  EXPECT_THAT(Traced({.steps = "0:2"}, 4), ElementsAre(0, 1));
  EXPECT_THAT(Traced({.steps = "9"}, 8), IsEmpty());
  EXPECT_THAT(Traced({.every_steps = 3}, 8), ElementsAre(3, 6));
  EXPECT_THAT(Traced({.every = absl::Hours(1)}, 8), IsEmpty());
  EXPECT_THAT(Traced({.every = absl::Nanoseconds(1)}, 3), ElementsAre(0, 1, 2));
}

TEST(ProfilerHook, TracesOneRunWhenOthersTookTheStepsPastItsOwn) {
  const TempDirectory directory = TempDirectory::Make("profile").value();
  const auto hook = ProfilerHook::Make({.output_dir = directory.path(), .steps = "3:5"}).value();
  HookedProgram program(hook.get());
  EXPECT_FALSE(program.Run());
  for (int i = 0; i < 20; ++i) ASSERT_EQ(program.session().Run(program.add_), absl::OkStatus());
  EXPECT_FALSE(program.Run());  // it learns of them with this one
  EXPECT_TRUE(program.Run());
  EXPECT_FALSE(program.Run());
}

TEST(ProfilerHook, SaysWhatIsWrongWithItsOptions) {
  const auto message = [](const ProfilerHookOptions& options) {
    return std::string(ProfilerHook::Make(options).status().message());
  };
  EXPECT_THAT(message({.steps = "3"}), HasSubstr("output_dir"));
  EXPECT_THAT(message({.output_dir = "d"}), HasSubstr("one of steps"));
  EXPECT_THAT(message({.output_dir = "d", .steps = "3", .every_steps = 2}), HasSubstr("one of steps"));
  for (const char* steps : {"x", "5:", ":5", "5:5", "5:4", "-1", "1:2:3", "1.5"}) {
    EXPECT_THAT(message({.output_dir = "d", .steps = steps}),
                HasSubstr(absl::StrCat("'", steps, "' is not a range of steps")))
        << steps;
  }
}

TEST(ProfilerHook, AFolderThatCannotBeWrittenDoesNotEndTheTraining) {
  const TempDirectory directory = TempDirectory::Make("profile").value();
  ASSERT_EQ(ReplaceFile(FileSystem::Posix(), directory.File("file"), ""), absl::OkStatus());
  const auto hook = ProfilerHook::Make({.output_dir = directory.File("file"), .steps = "0"}).value();
  HookedProgram program(hook.get());
  EXPECT_TRUE(program.Run());
  EXPECT_FALSE(program.Run());
}

TEST(ProfilerHook, MeasuresTheClocksOfTheTasks) {
  SkewedClock ps_clock(absl::Seconds(40));
  const std::vector<int> ports = FreePorts(2);
  const ClusterSpec cluster = ClusterSpec::Of({{"ps", {absl::StrCat("localhost:", ports[0])}},
                                               {"worker", {absl::StrCat("localhost:", ports[1])}}})
                                  .value();
  const auto ps = Server::Start(cluster, "ps", 0, {.clock = &ps_clock}).value();
  const auto worker = Server::Start(cluster, "worker", 0).value();
  const TempDirectory directory = TempDirectory::Make("profile").value();
  const auto hook = ProfilerHook::Make({.output_dir = directory.path(),
                                        .steps = "1",
                                        .task = "/job:worker/replica:0/task:0",
                                        .target = worker->target()})
                        .value();
  HookedProgram program(hook.get(), {.target = worker->target()});
  for (int i = 0; i < 3; ++i) program.Run();
  EXPECT_THAT(FileSystem::Posix()->List(directory.path()).value(), ElementsAre("worker_0.step_1.timeline_part"));
  TimelinePart part;
  ASSERT_TRUE(part.ParseFromString(
      ReadWholeFile(FileSystem::Posix(), directory.File("worker_0.step_1.timeline_part")).value()));
  ASSERT_EQ(part.clocks_size(), 2);
  EXPECT_EQ(part.clocks(0).task(), "/job:ps/replica:0/task:0");
  EXPECT_NEAR(part.clocks(0).offset_nanos() / 1e9, 40, part.clocks(0).error_nanos() / 1e9 + 1e-3);
  EXPECT_NEAR(part.clocks(1).offset_nanos() / 1e9, 0, part.clocks(1).error_nanos() / 1e9 + 1e-3);
  const nlohmann::json trace =
      nlohmann::json::parse(ReadWholeFile(FileSystem::Posix(), MergeTimelines(directory.path()).value()).value());
  EXPECT_EQ(trace["otherData"]["clock"], "/job:ps/replica:0/task:0");
  EXPECT_NEAR(trace["otherData"]["clocks"]["/job:worker/replica:0/task:0"]["offset_us"].get<double>(), -40e6, 1e6);
}

TEST(MeasureClock, SaysHowFarItMayBeOffAndWhoDoesNotAnswer) {
  SkewedClock clock(absl::Seconds(-5));
  const auto server = Server::CreateLocalServer({.clock = &clock}).value();
  const auto transport = net::NewGrpcTransport();
  const ClockReading reading = MeasureClock(transport.get(), server->target().substr(7)).value();
  EXPECT_LE(absl::AbsDuration(reading.offset + absl::Seconds(5)), reading.error + absl::Milliseconds(1));
  EXPECT_GT(reading.error, absl::ZeroDuration());
  EXPECT_EQ(MeasureClock(transport.get(), absl::StrCat("localhost:", FreePorts(1)[0]), {.timeout = absl::Seconds(5)})
                .status()
                .code(),
            absl::StatusCode::kUnavailable);
}

TEST(ProfilerHookFromEnvironment, IsThereWhenALauncherAsksForIt) {
  unsetenv(kProfileStepsVariable);
  EXPECT_EQ(ProfilerHookFromEnvironment().value(), nullptr);
  setenv(kProfileStepsVariable, "2:4", 1);
  unsetenv(kProfileDirVariable);
  EXPECT_THAT(std::string(ProfilerHookFromEnvironment().status().message()), HasSubstr("MILLRACE_PROFILE_DIR"));
  const TempDirectory directory = TempDirectory::Make("profile").value();
  setenv(kProfileDirVariable, directory.path().c_str(), 1);
  setenv("TF_CONFIG", R"({"cluster": {"worker": ["localhost:1"]}, "task": {"type": "worker", "index": 0}})", 1);
  const auto hook = ProfilerHookFromEnvironment("").value();
  ASSERT_NE(hook, nullptr);
  unsetenv("TF_CONFIG");
  HookedProgram program(hook.get());
  for (int i = 0; i < 6; ++i) program.Run();
  EXPECT_THAT(FileSystem::Posix()->List(directory.path()).value(),
              ElementsAre("worker_0.step_2.timeline_part", "worker_0.step_3.timeline_part"));
  setenv(kProfileStepsVariable, "many", 1);
  EXPECT_THAT(std::string(ProfilerHookFromEnvironment().status().message()), HasSubstr("'many'"));
  unsetenv(kProfileStepsVariable);
  unsetenv(kProfileDirVariable);
}

}  // namespace
}  // namespace millrace
