// Tensors that no message of gRPC's could hold.

#include "millrace/base/process_usage.h"
#include "millrace/cluster/step/step_transport_testing.h"

namespace millrace {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// More than 2^31 bytes.
constexpr int64_t kFloats = 550'000'000;

// Empty: the machine is large enough.
std::string WhyNot() {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  return "not under a sanitizer";
#endif
  if (AvailableMemory() < size_t{3} * kFloats * 4)
    return absl::StrCat("needs ", 3 * kFloats * 4 / 1'000'000'000, " GB of memory");
  return "";
}

class LargeTensorTest : public StepTransportTest {
 protected:
  // The variable "w" of ones whose last element is 5, and its largest on worker `reader`; worker 0 is the master.
  void StartLarge(int workers, int reader) {
    Start(workers);
    OnPs();
    const Endpoint w = Variable("w", DType::kFloat, Shape({kFloats}), Filled(Shape({kFloats}), 1));
    b_.AddNode("ResourceScatterUpdate",
               {w, b_.Const(Tensor::Of<int64_t>({kFloats - 1})), b_.Const(Tensor::Of<float>({5}))},
               {{"dtype", DType::kFloat}}, "last");
    OnWorker(reader);
    b_.Op("Max", {Named("w/read"), b_.Ints({0})}, {}, "max");
    b_.Op("Min", {Named("w/read"), b_.Ints({0})}, {}, "min");
    // The same without a variable: something for a first step.
    const Endpoint x = b_.Op("Placeholder", {}, {{"dtype", DType::kFloat}, {"shape", PartialShape({})}}, "x");
    OnPs();
    const Endpoint filled =
        b_.Op("Fill", {b_.Const(Tensor::Of<int64_t>({kFloats})), x}, {{"index_type", DType::kInt64}}, "filled");
    OnWorker(reader);
    b_.Op("Max", {filled, b_.Ints({0})}, {}, "max_of_filled");
    ASSERT_EQ(b_.status(), absl::OkStatus());
  }
  void ExpectAFirstStepCarriesIt(int reader) {
    if (const std::string why = WhyNot(); !why.empty()) GTEST_SKIP() << why;
    StartLarge(2, reader);
    session_ = OpenSession({.target = worker().target()}, graph_);
    const StatusOr<std::vector<Tensor>> read = session_->Run({{"x", Tensor::Scalar(7.f)}}, {"max_of_filled"});
    if (has_lane()) {
      ASSERT_EQ(read.status(), absl::OkStatus());
      EXPECT_EQ((*read)[0].scalar<float>(), 7);
    } else {
      EXPECT_EQ(read.status().code(), absl::StatusCode::kInvalidArgument) << read.status();
      EXPECT_THAT(std::string(read.status().message()), AllOf(HasSubstr("filled"), HasSubstr("float[550000000]")));
    }
    ExpectQuiet();
  }
};

INSTANTIATE_TEST_SUITE_P(Over, LargeTensorTest, ::testing::Values("grpc", "tcp", "shm"), TransportName);

TEST_P(LargeTensorTest, AVariableOfMoreThanTwoGigabytesIsReadByAWorker) {
  if (const std::string why = WhyNot(); !why.empty()) GTEST_SKIP() << why;
  StartLarge(1, 0);
  session_ = OpenSession({.target = worker().target()}, graph_);
  ASSERT_EQ(session_->RunTargets({"w/init"}), absl::OkStatus());
  ASSERT_EQ(session_->RunTargets({"last"}), absl::OkStatus());
  const StatusOr<std::vector<Tensor>> read = session_->Run({"min", "max"});
  if (has_lane()) {
    ASSERT_EQ(read.status(), absl::OkStatus());
    EXPECT_EQ((*read)[0].scalar<float>(), 1);
    EXPECT_EQ((*read)[1].scalar<float>(), 5);
    EXPECT_GT(PeerOf(worker(), ps()).bytes_received, uint64_t{4} * kFloats);
  } else {
    EXPECT_EQ(read.status().code(), absl::StatusCode::kInvalidArgument) << read.status();
    EXPECT_THAT(std::string(read.status().message()),
                AllOf(HasSubstr("w/read"), HasSubstr("float[550000000]"), HasSubstr("2147483647")));
    // And nothing else suffers.
    EXPECT_EQ(session_->RunTargets({"last"}), absl::OkStatus());
  }
  ExpectQuiet();
}

TEST_P(LargeTensorTest, AFirstStepMayCarryItToTheMaster) { ExpectAFirstStepCarriesIt(0); }
TEST_P(LargeTensorTest, AFirstStepMayCarryItToAnotherTask) { ExpectAFirstStepCarriesIt(1); }

}  // namespace
}  // namespace millrace
