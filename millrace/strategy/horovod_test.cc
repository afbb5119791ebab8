// Programs that use horovod.h, in processes of their own: alone, as the workers of a job, and under mpirun.
#include "millrace/strategy/horovod.h"

#include <csignal>
#include <cstdio>
#include <filesystem>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "millrace/api/layers.h"
#include "millrace/api/losses.h"
#include "millrace/api/op_call.h"
#include "millrace/api/optimizers.h"
#include "millrace/base/child_process_testing.h"
#include "millrace/cluster/server_testing.h"
#include "millrace/train/monitored_training_session.h"

namespace millrace {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<float> FloatsOf(const Tensor& tensor) { return {tensor.flat<float>().begin(), tensor.flat<float>().end()}; }

void ExchangeTensors() {
  const auto rank = static_cast<float>(hvd::Rank()), size = static_cast<float>(hvd::Size());
  const Tensor own = Tensor::Of<float>({rank, 0.5f});
  const auto mean = hvd::Allreduce(own);
  ASSERT_TRUE(mean.ok()) << mean.status();
  EXPECT_THAT(FloatsOf(*mean), ElementsAre((size - 1) / 2, 0.5f));
  const auto sum = hvd::Allreduce(own, {.op = hvd::kSum, .compression = hvd::Compression::kFp16});
  ASSERT_TRUE(sum.ok()) << sum.status();
  EXPECT_THAT(FloatsOf(*sum), ElementsAre(size * (size - 1) / 2, size / 2)) << "of type " << sum->DebugString();
  for (const DType dtype : {DType::kDouble, DType::kHalf, DType::kBFloat16, DType::kInt8, DType::kUInt8, DType::kInt16,
                            DType::kUInt16, DType::kInt32, DType::kUInt32, DType::kInt64, DType::kUInt64}) {
    const Tensor zeros = Tensor(dtype, Shape({3})).Clone();
    std::memset(zeros.raw_data(), 0, zeros.TotalBytes());
    const auto product = hvd::Allreduce(zeros, {.name = absl::StrCat("zeros ", DTypeName(dtype)), .op = hvd::kProduct});
    ASSERT_TRUE(product.ok()) << product.status();
    EXPECT_EQ(product->dtype(), dtype);
    EXPECT_EQ(std::memcmp(product->raw_data(), zeros.raw_data(), zeros.TotalBytes()), 0);
  }
  Tensor rows(DType::kInt64, Shape({1 + hvd::Rank(), 2}));
  for (int64_t& value : rows.flat<int64_t>()) value = hvd::Rank();
  const auto all = hvd::Allgather(rows);
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_EQ(all->shape(), Shape({hvd::Size() * (hvd::Size() + 1) / 2, 2}));
  EXPECT_EQ(all->flat<int64_t>().back(), hvd::Size() - 1);
  const auto last = hvd::Broadcast(own, hvd::Size() - 1, "last");
  ASSERT_TRUE(last.ok()) << last.status();
  EXPECT_THAT(FloatsOf(*last), ElementsAre(size - 1, 0.5f));
  // Several in flight, in an order of their own on each rank.
  std::vector<hvd::Handle> handles;
  for (int i = 0; i < 20; ++i) {
    const int which = (i + 7 * hvd::Rank()) % 20;
    handles.push_back(hvd::AllreduceAsync(Tensor::Scalar<int32_t>(which), {.name = absl::StrCat("async ", which)}));
  }
  for (int i = 0; i < 20; ++i) {
    const auto result = handles[static_cast<size_t>(i)].Wait();
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->scalar<int32_t>(), (i + 7 * hvd::Rank()) % 20);
    EXPECT_TRUE(handles[static_cast<size_t>(i)].IsDone());
  }
  EXPECT_EQ(hvd::Barrier(), absl::OkStatus());
}

// y = 3x - 1 from points that the ranks share. All ranks end with the same variables, which fit.
void Train(const hvd::DistributedOptimizerOptions& options) {
  const Scope s = Scope::NewRoot();
  s.SetRandomSeed(1 + hvd::Rank());  // other first values on each rank, until the broadcast
  const Output x = Op(s, "Placeholder", {}, {{"dtype", DType::kFloat}, {"shape", PartialShape({-1, 1})}});
  const Output y = Op(s, "Placeholder", {}, {{"dtype", DType::kFloat}, {"shape", PartialShape({-1, 1})}});
  const Output loss = losses::MeanSquaredError(s, y, layers::Dense(s, x, 1));
  hvd::DistributedOptimizer optimizer(
      std::make_unique<optimizers::Momentum>(optimizers::MomentumOptions{.learning_rate = 0.05}), options);
  const Operation train = optimizer.Minimize(s, loss, {.global_step = GlobalStep(s)});
  ASSERT_EQ(s.status(), absl::OkStatus());
  auto session =
      MonitoredTrainingSession(s, {.hooks = {std::make_shared<hvd::BroadcastGlobalVariablesHook>(hvd::Size() - 1)}});
  ASSERT_TRUE(session.ok()) << session.status();
  const auto at = static_cast<float>(hvd::Rank()) / 4;
  const Tensor xs = Tensor::Of<float>({2, 1}, {at, 1 + at}), ys = Tensor::Of<float>({2, 1}, {3 * at - 1, 3 * at + 2});
  for (int i = 0; i < 400; ++i) ASSERT_TRUE((*session)->Run({{x, xs}, {y, ys}}, {}, {train}).ok());
  for (const Var& variable : TrainableVariables(s)) {
    const auto value = (*session)->raw_session()->Run({}, {variable});
    ASSERT_TRUE(value.ok()) << value.status();
    const bool is_kernel = (*value)[0].rank() == 2;
    EXPECT_NEAR((*value)[0].scalar<float>(), is_kernel ? 3 : -1, 0.02) << variable.var_name();
    const auto least = hvd::Allreduce((*value)[0], {.op = hvd::kMin}),
               most = hvd::Allreduce((*value)[0], {.op = hvd::kMax});
    EXPECT_EQ(least->scalar<float>(), most->scalar<float>()) << "the ranks differ in " << variable.var_name();
  }
}

// The rows of an embedding that the ranks look up get all their gradients.
void TrainRows(bool sparse_as_dense) {
  const Scope s = Scope::NewRoot();
  const Var table(s, "table", Tensor::Of<float>({4, 1}, {0, 0, 0, 0}));
  const Output row = Op(s, "GatherV2", {table, Tensor::Of<int32_t>({std::min(hvd::Rank(), 2)}), 0});
  hvd::DistributedOptimizer optimizer(
      std::make_unique<optimizers::GradientDescent>(optimizers::GradientDescentOptions{.learning_rate = 1.0}),
      {.sparse_as_dense = sparse_as_dense});
  const Operation train = optimizer.Minimize(s, Op(s, "Sum", {row, Tensor::Of<int32_t>({0, 1})}));
  const Operation init = GlobalVariablesInitializer(s);
  ASSERT_EQ(s.status(), absl::OkStatus());
  ClientSession session = ClientSession::Create(s).value();
  ASSERT_TRUE(session.Run({}, {}, {init}).ok());
  const auto status = session.Run({}, {}, {train}).status();
  ASSERT_EQ(status, absl::OkStatus());
  const Tensor after = session.Run({}, {table}).value()[0];
  const int size = hvd::Size();
  for (int i = 0; i < 4; ++i) {
    const int ranks = i == 3 || i >= size ? 0 : i == 2 ? size - 2 : 1;
    EXPECT_FLOAT_EQ(after.flat<float>()[static_cast<size_t>(i)], -static_cast<float>(ranks) / static_cast<float>(size));
  }
}

// Rank r has r steps of data.
void TrainUnevenly() {
  for (int step = 0; step < hvd::Rank(); ++step) {
    const auto sum = hvd::Allreduce(Tensor::Scalar<float>(1), {.name = "uneven", .op = hvd::kSum});
    ASSERT_TRUE(sum.ok()) << sum.status();
    EXPECT_EQ(sum->scalar<float>(), hvd::Size() - 1 - step);
  }
  const auto last = hvd::Join();
  ASSERT_TRUE(last.ok()) << last.status();
  EXPECT_EQ(*last, hvd::Size() - 1);
}

void Differ() {
  if (hvd::Size() == 1) return;
  const auto sum = hvd::Allreduce(Tensor(DType::kFloat, Shape({hvd::Rank() == 1 ? 5 : 4})), {.name = "differs"});
  EXPECT_EQ(sum.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(sum.status().message()), AllOf(HasSubstr("'differs'"), HasSubstr("rank 1 has")));
}

// The argument: "all" or "die", the carrier, and for the workers of a job the text of TF_CONFIG.
TEST(HorovodChild, Run) {
  if (ChildProcess::Argument() == nullptr) GTEST_SKIP() << "for other tests";
  const std::vector<std::string> words = absl::StrSplit(ChildProcess::Argument(), absl::MaxSplits(' ', 2));
  if (words.size() > 2) setenv("TF_CONFIG", words[2].c_str(), 1);
  const Status init = hvd::Init({.carrier = words[1]});
  ASSERT_EQ(init, absl::OkStatus());
  EXPECT_EQ(hvd::Init().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(hvd::LocalRank(), hvd::Rank());
  EXPECT_EQ(hvd::LocalSize(), hvd::Size());
  ExchangeTensors();
  if (words[0] == "die") {
    if (hvd::Rank() == 1) raise(SIGKILL);
    const auto never = hvd::Allreduce(Tensor::Scalar<float>(1));
    ChildProcess::Say(absl::StrCat("got ", never.status().ToString()));
    return;
  }
  Train({});
  Train({.compression = hvd::Compression::kFp16});
  TrainRows(/*sparse_as_dense=*/false);
  TrainRows(/*sparse_as_dense=*/true);
  TrainUnevenly();
  Differ();
  const int rank = hvd::Rank(), size = hvd::Size();
  EXPECT_EQ(hvd::Shutdown(), absl::OkStatus());
  EXPECT_FALSE(hvd::IsInitialized());
  if (!HasFailure()) ChildProcess::Say(absl::StrCat("rank ", rank, " of ", size, " is content"));
}

// The children of a job of `size` workers.
std::vector<std::unique_ptr<ChildProcess>> StartWorkers(const std::string& what, int size) {
  std::vector<std::string> addresses;
  for (const int port : FreePorts(static_cast<size_t>(size)))
    addresses.push_back(absl::StrCat("\"localhost:", port, "\""));
  std::vector<std::unique_ptr<ChildProcess>> children;
  for (int rank = 0; rank < size; ++rank) {
    const std::string config = absl::StrCat(R"({"cluster": {"worker": [)", absl::StrJoin(addresses, ","),
                                            R"(]}, "task": {"type": "worker", "index": )", rank, "}}");
    children.push_back(std::make_unique<ChildProcess>("HorovodChild.Run", absl::StrCat(what, " auto ", config)));
  }
  return children;
}

TEST(Horovod, TheWorkersOfAJobTrainTogether) {
  const auto children = StartWorkers("all", 3);
  for (int rank = 0; rank < 3; ++rank)
    EXPECT_TRUE(children[static_cast<size_t>(rank)]->Hears(absl::StrCat("rank ", rank, " of 3 is content")));
}

TEST(Horovod, AProcessByItselfTrainsAlone) {
  ChildProcess child("HorovodChild.Run", "all auto");
  EXPECT_TRUE(child.Hears("rank 0 of 1 is content"));
}

TEST(Horovod, ARankThatIsKilledIsNamedByTheOthers) {
  const auto children = StartWorkers("die", 3);
  for (const size_t rank : {0u, 2u}) {
    std::string status;
    ASSERT_TRUE(children[rank]->Hears("got ", &status));
    EXPECT_THAT(status, AllOf(HasSubstr("UNAVAILABLE"), HasSubstr("rank 1 (/job:worker"))) << "on rank " << rank;
  }
}

// All output of a command.
std::string OutputOf(const std::string& command) {
  std::string output;
  FILE* const pipe = popen(command.c_str(), "re");
  if (pipe == nullptr) return "popen failed";
  char buffer[4096];
  for (size_t n = 0; (n = fread(buffer, 1, sizeof(buffer), pipe)) > 0;) output.append(buffer, n);
  const int status = pclose(pipe);
  return absl::StrCat(output, "\nended with ", status);
}

class HorovodUnderMpirun : public ::testing::TestWithParam<const char*> {};

TEST_P(HorovodUnderMpirun, TheSameProgramNeedsNoConfiguration) {
  ASSERT_EQ(std::system("command -v mpirun > /dev/null"), 0) << "install the Debian package openmpi-bin";
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  const std::string output = OutputOf(absl::StrCat(
      "env -u TF_CONFIG -u GTEST_TOTAL_SHARDS -u GTEST_SHARD_INDEX -u GTEST_SHARD_STATUS_FILE -u GTEST_OUTPUT "
      "MILLRACE_TEST_CHILD='all ",
      GetParam(), "' timeout 120 mpirun --oversubscribe --allow-run-as-root -np 3 '", program,
      "' --gtest_filter=HorovodChild.Run 2>&1"));
  for (int rank = 0; rank < 3; ++rank) EXPECT_THAT(output, HasSubstr(absl::StrCat("rank ", rank, " of 3 is content")));
  EXPECT_THAT(output, HasSubstr("ended with 0"));
}

INSTANTIATE_TEST_SUITE_P(Carriers, HorovodUnderMpirun, ::testing::Values("auto", "mpi"),
                         [](const auto& info) { return std::string(info.param); });

TEST(Horovod, BeforeInitEverythingSaysSo) {
  EXPECT_FALSE(hvd::IsInitialized());
  EXPECT_EQ(hvd::Rank(), -1);
  EXPECT_EQ(hvd::LocalSize(), -1);
  const Tensor tensor = Tensor::Of<float>({1});
  for (const Status& status :
       {hvd::Allreduce(tensor).status(), hvd::Allgather(tensor).status(), hvd::Broadcast(tensor, 0).status(),
        hvd::Join().status(), hvd::Barrier(), hvd::Shutdown()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()), HasSubstr("before hvd::Init"));
  }
  const Scope s = Scope::NewRoot();
  const Output sum = hvd::Allreduce(s, Op(s, "Identity", {1.0f}));
  EXPECT_TRUE(sum.empty());
  EXPECT_THAT(std::string(s.status().message()), HasSubstr("hvd::Allreduce was called before hvd::Init"));
}

TEST(Horovod, ACarrierThatIsNotThereIsNamed) {
  EXPECT_THAT(std::string(hvd::Init({.carrier = "pigeon"}).message()), HasSubstr("'pigeon'"));
  EXPECT_THAT(std::string(hvd::Init({.carrier = "mpi"}).message()), HasSubstr("mpirun"));
  EXPECT_FALSE(hvd::IsInitialized());
}

}  // namespace
}  // namespace millrace
