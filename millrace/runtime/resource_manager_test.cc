#include "millrace/runtime/resource_manager.h"

#include <gtest/gtest.h>

#include "millrace/runtime/variable.h"

namespace millrace {
namespace {

class Counter : public Resource {
 public:
  explicit Counter(int* alive) : alive_(alive) { ++*alive_; }
  ~Counter() override { --*alive_; }
  std::string DebugString() const override { return "Counter"; }

 private:
  int* alive_;
};

TEST(ResourceManagerTest, LookupFindsWhatWasCreated) {
  int alive = 0;
  ResourceManager manager;
  ASSERT_TRUE(manager.Create("", "c", MakeRef<Counter>(&alive)).ok());
  EXPECT_TRUE(manager.Lookup<Counter>("localhost", "c").ok());
  const Status missing = manager.Lookup<Counter>("", "d").status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_NE(missing.message().find("localhost/d"), absl::string_view::npos);
  EXPECT_EQ(manager.Create("", "c", MakeRef<Counter>(&alive)).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(alive, 1);
  EXPECT_EQ(manager.List(), std::vector<std::string>({"localhost/c: Counter"}));
}

TEST(ResourceManagerTest, AnotherTypeUnderTheNameIsAnError) {
  int alive = 0;
  ResourceManager manager;
  ASSERT_TRUE(manager.Create("", "c", MakeRef<Counter>(&alive)).ok());
  const Status wrong = manager.Lookup<Variable>("", "c").status();
  EXPECT_EQ(wrong.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(wrong.message().find("is not a Variable but Counter"), absl::string_view::npos) << wrong;
}

TEST(ResourceManagerTest, LookupOrCreateMakesOnce) {
  int alive = 0, made = 0;
  ResourceManager manager;
  const auto make = [&]() -> StatusOr<RefPtr<Counter>> {
    ++made;
    return MakeRef<Counter>(&alive);
  };
  const RefPtr<Counter> a = manager.LookupOrCreate<Counter>("x", "c", make).value();
  const RefPtr<Counter> b = manager.LookupOrCreate<Counter>("x", "c", make).value();
  EXPECT_TRUE(a == b);
  EXPECT_EQ(made, 1);
  const auto fail = []() -> StatusOr<RefPtr<Counter>> { return Internal("no"); };
  EXPECT_FALSE(manager.LookupOrCreate<Counter>("x", "d", fail).ok());
  EXPECT_FALSE(manager.Lookup<Counter>("x", "d").ok());
}

TEST(ResourceManagerTest, DeletedResourceLivesAsLongAsItsUsers) {
  int alive = 0;
  ResourceManager manager;
  ASSERT_TRUE(manager.Create("", "c", MakeRef<Counter>(&alive)).ok());
  RefPtr<Counter> user = manager.Lookup<Counter>("", "c").value();
  ASSERT_TRUE(manager.Delete("", "c").ok());
  EXPECT_EQ(manager.Delete("", "c").code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(alive, 1);
  user.reset();
  EXPECT_EQ(alive, 0);
}

TEST(ResourceManagerTest, ClearTouchesOneContainerOnly) {
  int alive = 0;
  ResourceManager manager;
  for (const char* container : {"a", "b"}) {
    for (const char* name : {"x", "y"}) {
      ASSERT_TRUE(manager.Create(container, name, MakeRef<Counter>(&alive)).ok());
    }
  }
  manager.ClearContainer("a");
  manager.ClearContainer("no such");
  EXPECT_EQ(alive, 2);
  EXPECT_TRUE(manager.Lookup<Counter>("b", "y").ok());
  manager.ClearAll();
  EXPECT_EQ(alive, 0);
}

}  // namespace
}  // namespace millrace
