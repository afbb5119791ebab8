// A wrong file in the place of libmillrace_cuda.so is told by name, once, and the CPU goes on working. Needs no GPU.
#include "millrace/device/cuda_library.h"

#include <cstdlib>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "millrace/base/version.h"
#include "millrace/graph/graph_builder.h"
#include "millrace/session/session.h"

namespace millrace {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// The library that tests/gpu/NAME.cc is compiled to.
std::string Wrong(const std::string& name) { return absl::StrCat(MILLRACE_WRONG_LIBRARIES, "/libcuda_", name, ".so"); }

std::string Refusal(const std::string& path) {
  const StatusOr<const CudaLibrary*> library = OpenCudaLibrary(path);
  EXPECT_EQ(library.status().code(), absl::StatusCode::kFailedPrecondition);
  return std::string(library.status().message());
}

TEST(CudaLibrary, AFileThatIsNotThereIsNamed) {
  EXPECT_EQ(Refusal("/nonexistent/libmillrace_cuda.so"),
            "cannot open /nonexistent/libmillrace_cuda.so: cannot open shared object file: No such file or directory");
}

TEST(CudaLibrary, AFileThatIsNoLibraryIsNamed) {
  const std::string file = absl::StrCat(MILLRACE_TESTDATA, "/README.md");
  EXPECT_THAT(Refusal(file), AllOf(StartsWith("cannot open " + file), HasSubstr("invalid ELF header")));
}

TEST(CudaLibrary, ALibraryOfOthersIsNamed) {
  EXPECT_EQ(Refusal(Wrong("without_symbol")),
            Wrong("without_symbol") + " is not Millrace's library for CUDA: it has no symbol millrace_cuda_library");
}

TEST(CudaLibrary, AnotherVersionIsNamedBesideOurs) {
  EXPECT_EQ(Refusal(Wrong("other_version")),
            absl::StrCat(Wrong("other_version"), " is of version 0.0.0 and libmillrace.so of version ", Version(),
                         ": install both from one build"));
}

TEST(CudaLibrary, OneThatWasBuiltWithAnotherCoreIsRefusedBeforeItRuns) {
  EXPECT_THAT(
      Refusal(Wrong("other_core")),
      AllOf(HasSubstr(absl::StrCat("was built with another libmillrace.so than this one, which is ", Version())),
            HasSubstr("undefined symbol: millrace_version_0_0_0")));
}

// What a process finds, it finds once, so this is one test.
TEST(CudaLibrary, WithAWrongOneTheCpuGoesOnAndOneLineSaysWhy) {
  setenv("MILLRACE_CUDA_LIBRARY", Wrong("other_version").c_str(), 1);
  testing::internal::CaptureStderr();
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([] {
      EXPECT_EQ(CudaDeviceCount(), 0);
      EXPECT_EQ(NewCudaDevices({}).value().size(), 0u);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(WhyNoCudaDevices(), HasSubstr("is of version 0.0.0"));

  Graph graph;
  GraphBuilder b(&graph);
  b.Op("Neg", {b.Const(Tensor::Of<float>({1, 2}))}, {}, "y");
  const std::unique_ptr<Session> session = Session::Create({}).value();
  ASSERT_TRUE(session->Extend(graph).ok());
  EXPECT_EQ(session->ListDevices().size(), 1u);
  const StatusOr<std::vector<Tensor>> y = session->Run({}, {"y"});
  ASSERT_TRUE(y.ok()) << y.status();
  EXPECT_EQ((*y)[0].data<float>()[1], -2);

  const std::string said = testing::internal::GetCapturedStderr();
  const std::string line = absl::StrCat("continuing without GPUs: ", Wrong("other_version"), " is of version 0.0.0");
  EXPECT_THAT(said, HasSubstr(line));
  EXPECT_EQ(said.find(line), said.rfind(line)) << said;
}

}  // namespace
}  // namespace millrace
