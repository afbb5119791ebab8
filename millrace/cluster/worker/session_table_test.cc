#include "millrace/cluster/worker/session_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace millrace {
namespace {

using ::testing::HasSubstr;

class SessionTableTest : public ::testing::Test {
 protected:
  std::shared_ptr<WorkerSession> NewSession(const std::string& handle) const {
    return std::make_shared<WorkerSession>(WorkerSessionOptions{.task = task_, .on_task = {.handle = handle}});
  }

  const std::shared_ptr<Task> task_ = std::make_shared<Task>(TaskOptions());
  SessionTable table_{"/job:ps/replica:0/task:0", NewSession("")};
};

TEST_F(SessionTableTest, ASessionThatIsClosedWhileItIsMadeIsNotStored) {
  const StatusOr<std::shared_ptr<WorkerSession>> made = table_.FindOrMake("s", [&] {
    EXPECT_EQ(table_.Close("s"), nullptr);  // no lock is held here
    return NewSession("s");
  });
  EXPECT_TRUE(absl::IsAborted(made.status()));
  EXPECT_THAT(std::string(made.status().message()), HasSubstr("session 's' was closed on /job:ps"));
  EXPECT_TRUE(table_.List().empty());
}

TEST_F(SessionTableTest, WhoeverMakesASessionAtOnceGetsTheSameOne) {
  StatusOr<std::shared_ptr<WorkerSession>> first;
  const StatusOr<std::shared_ptr<WorkerSession>> second = table_.FindOrMake("s", [&] {
    first = table_.FindOrMake("s", [&] { return NewSession("s"); });
    return NewSession("s");
  });
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(first->get(), second->get());
  EXPECT_EQ(table_.Find("s", /*created=*/true)->get(), second->get());
}

TEST_F(SessionTableTest, AFailureToMakeOneLeavesNothingBehind) {
  EXPECT_TRUE(absl::IsInvalidArgument(table_.FindOrMake("s", [] { return InvalidArgument("no such task"); }).status()));
  EXPECT_TRUE(table_.FindOrMake("s", [&] { return NewSession("s"); }).ok());
}

TEST_F(SessionTableTest, AGraphThatIsRegisteredAfterTheSessionEndedIsRefusedAndKeepsNothingAlive) {
  std::shared_ptr<WorkerSession> session = NewSession("s");
  auto graph = std::make_shared<RegisteredGraph>();
  graph->session = session;
  session->DeregisterAll();
  EXPECT_TRUE(absl::IsAborted(session->Register(graph).status()));
  const std::weak_ptr<WorkerSession> weak = session;
  graph = nullptr;
  session = nullptr;
  EXPECT_TRUE(weak.expired());
}

}  // namespace
}  // namespace millrace
