#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "millrace/base/file.h"
#include "tests/ops/run_op.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;

TEST(ImmutableConst, HoldsTheBytesOfItsFile) {
  const auto folder = TempDirectory::Make("immutable_const");
  ASSERT_TRUE(folder.ok());
  const std::string path = folder->File("values");
  const int16_t values[] = {1, 2, 3};
  ASSERT_TRUE(ReplaceFile(FileSystem::Posix(), path, {reinterpret_cast<const char*>(values), sizeof(values)}).ok());
  const auto read = [&](DType dtype, int64_t n, const std::string& from) {
    return RunOp("ImmutableConst", {}, {{"dtype", dtype}, {"shape", PartialShape({n})}, {"memory_region_name", from}});
  };
  const auto got = read(DType::kInt16, 3, path);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_THAT((*got)[0].flat<int16_t>(), ElementsAre(1, 2, 3));
  EXPECT_EQ(read(DType::kInt16, 4, path).status().code(), absl::StatusCode::kInternal);
  EXPECT_EQ(read(DType::kInt16, 3, path + "x").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(read(DType::kString, 1, path).status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(read(DType::kInt16, -1, path).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace millrace
