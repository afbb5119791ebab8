// Libraries that are opened at run time. Needs no GPU.
#include "millrace/device/cuda/opened_library.h"

#include <unistd.h>

#include <cstdlib>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(OpenedLibrary, FunctionsAreFoundByName) {
  const StatusOr<OpenedLibrary> library = OpenedLibrary::Open({"libm.so.99", "libm.so.6"});
  ASSERT_TRUE(library.ok()) << library.status();
  double (*root)(double) = nullptr;
  ASSERT_TRUE(library->Find("sqrt", &root).ok());
  EXPECT_EQ(root(9), 3);
  const Status missing = library->Find("cubeRoot", &root);
  EXPECT_EQ(missing.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(missing.message()), HasSubstr("libm.so.6 has no function cubeRoot"));
}

TEST(OpenedLibrary, AMissingOneIsNamedAndHowToGetIt) {
  const Status status = OpenedLibrary::Open({"libcuwhatever.so.13", "libcuwhatever.so.12"}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(),
            "cannot open libcuwhatever.so.13: cannot open shared object file: No such file or directory; install CUDA "
            "13's libraries, or name their folder in MILLRACE_CUDA_LIBRARIES");
}

TEST(OpenedLibrary, TheFoldersOfTheVariableComeFirst) {
  char folder[] = "/tmp/opened_library_XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  const std::string libm = OpenedLibrary::Open({"libm.so.6"}).value().path();
  const std::string good = absl::StrCat(folder, "/libcugood.so.13"), bad = absl::StrCat(folder, "/libcubad.so.13");
  ASSERT_EQ(symlink(libm.c_str(), good.c_str()), 0);
  ASSERT_EQ(symlink("/etc/passwd", bad.c_str()), 0);
  setenv("MILLRACE_CUDA_LIBRARIES", absl::StrCat("/nonexistent:", folder).c_str(), 1);
  EXPECT_TRUE(OpenedLibrary::Open({"libcugood.so.13"}).ok());
  // One that is there and cannot be opened is what the error is about.
  EXPECT_THAT(std::string(OpenedLibrary::Open({"libcubad.so.13"}).status().message()),
              StartsWith(absl::StrCat("cannot open ", bad, ": ")));
  unsetenv("MILLRACE_CUDA_LIBRARIES");
  unlink(good.c_str());
  unlink(bad.c_str());
  rmdir(folder);
}

}  // namespace
}  // namespace millrace
