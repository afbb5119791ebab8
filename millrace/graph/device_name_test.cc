#include "millrace/graph/device_name.h"

#include "gtest/gtest.h"

namespace millrace {
namespace {

TEST(DeviceNameTest, FullAndPartialNamesAreUnderstood) {
  const std::pair<const char*, const char*> cases[] = {
      {"/job:ps/replica:0/task:1/device:CPU:0", "/job:ps/replica:0/task:1/device:CPU:0"},
      {"/job:ps/task:1", "/job:ps/task:1"},
      {"/cpu:0", "/device:CPU:0"},
      {"/GPU:3", "/device:GPU:3"},
      {"CPU:0", "/device:CPU:0"},
      {"", ""},
      {"/", ""},
      {"/device:GPU:*", "/device:GPU:*"},
      {"/job:*/task:2", "/task:2"},
      {"/device:cpu", "/device:CPU:*"}};
  for (const auto& [text, want] : cases) {
    auto name = DeviceName::Parse(text);
    ASSERT_TRUE(name.ok()) << text << ": " << name.status();
    EXPECT_EQ(name->ToString(), want) << text;
  }
}

TEST(DeviceNameTest, NonsenseIsQuoted) {
  for (const char* bad :
       {"/job:", "/task:x", "/task:-1", "nonsense", "/device:CPU:0:1", "/job:a b", "//", "/tpu", "/task:99999999999"}) {
    auto name = DeviceName::Parse(bad);
    EXPECT_EQ(name.status().code(), absl::StatusCode::kInvalidArgument) << bad;
    EXPECT_NE(name.status().message().find(bad), absl::string_view::npos);
  }
}

TEST(DeviceNameTest, PartialNamesMatchAndMerge) {
  const DeviceName full = *DeviceName::Parse("/job:ps/replica:0/task:1/device:CPU:0");
  EXPECT_TRUE(full.IsFull());
  EXPECT_TRUE(DeviceName::Parse("/job:ps")->Matches(full));
  EXPECT_TRUE(DeviceName::Parse("")->Matches(full));
  EXPECT_FALSE(DeviceName::Parse("/job:ps/task:0")->Matches(full));
  EXPECT_EQ(DeviceName::Parse("/task:2")->Over(full).ToString(), "/job:ps/replica:0/task:2/device:CPU:0");
  EXPECT_EQ(DeviceName::Parse("/device:GPU")->Over(full).ToString(), "/job:ps/replica:0/task:1/device:GPU:*");
}

}  // namespace
}  // namespace millrace
