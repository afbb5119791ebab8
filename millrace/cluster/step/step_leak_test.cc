// Many steps leave nothing.
#include <dirent.h>
#include <malloc.h>

#include "millrace/cluster/step/step_transport_testing.h"

namespace millrace {
namespace {

int EntriesOf(const char* folder) {
  int count = 0;
  DIR* const dir = opendir(folder);
  while (readdir(dir) != nullptr) ++count;
  closedir(dir);
  return count;
}

class StepLeakTest : public StepTransportTest {};
INSTANTIATE_TEST_SUITE_P(Over, StepLeakTest, ::testing::Values("tcp", "shm"), TransportName);

TEST_P(StepLeakTest, AHundredThousandStepsLeaveNothing) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  constexpr int kSteps = 2'000;
#else
  // Half of them over each transport.
  constexpr int kSteps = 50'000;
#endif
  Start(1);
  OnPs();
  const Endpoint w = Variable("w", DType::kFloat, Shape({100}), Filled(Shape({100}), 0));
  Variable("large", DType::kFloat, Shape({20'000}), Filled(Shape({20'000}), 1));
  OnWorker();
  const Endpoint x = b_.Op("Placeholder", {}, {{"dtype", DType::kFloat}}, "x");
  const Endpoint more = b_.Add(b_.Sub(Named("w/read"), Named("w/read")), x);
  SumOf(Named("large/read"), "sum");
  OnPs();
  b_.AddNode("AssignAddVariableOp", {w, more}, {}, "add");
  b_.Op("CheckNumerics", {b_.Neg(x)}, {{"message", "no number"}}, "check");
  Session* const session = Open();
  ASSERT_EQ(session->RunTargets({"w/init", "large/init"}), absl::OkStatus());
  const auto add = session->MakeCallable({.feeds = {"x"}, .targets = {"add"}}).value();
  const auto read = session->MakeCallable({.fetches = {"sum"}}).value();
  const auto check = session->MakeCallable({.feeds = {"x"}, .fetches = {"check"}}).value();
  const Tensor one = Tensor::Scalar(1.f), none = Tensor::Scalar(0.f / 0.f);
  int failed = 0;
  std::vector<Tensor> results;
  const auto run = [&](int steps) {
    for (int i = 0; i < steps; ++i) {
      // Most are small; some move a large tensor; some fail.
      if (i % 20 == 7) {
        failed += !read->Run({}, &results).ok() || results[0].scalar<float>() != 20'000;
      } else if (i % 100 == 13) {
        failed += check->Run(absl::MakeConstSpan(&none, 1), &results).code() != absl::StatusCode::kInvalidArgument;
      } else {
        failed += !add->Run(absl::MakeConstSpan(&one, 1), &results).ok();
      }
    }
    results.clear();
    ExpectQuiet();
  };
  run(kSteps / 5);
  const size_t bytes = mallinfo2().uordblks + mallinfo2().hblkhd;
  const int descriptors = EntriesOf("/proc/self/fd");
  const int threads = EntriesOf("/proc/self/task");
  run(kSteps);
  EXPECT_EQ(failed, 0);
  EXPECT_TRUE(UsesTransport());
  // A task may have asked another whether it is there, and threads follow the load; neither grows with the steps.
  EXPECT_LE(EntriesOf("/proc/self/fd"), descriptors + 8);
  EXPECT_LE(EntriesOf("/proc/self/task"), threads + 8);
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
  // Less than ten bytes a step.
  EXPECT_LT(mallinfo2().uordblks + mallinfo2().hblkhd, bytes + 10 * kSteps);
#else
  static_cast<void>(bytes);
#endif
  for (const auto& server : servers_) {
    net::Transport* const transport = server->worker()->options().transport;
    EXPECT_TRUE(Await([&] { return transport->status().received_blocks == 0; })) << server->task().name();
  }
}

}  // namespace
}  // namespace millrace
