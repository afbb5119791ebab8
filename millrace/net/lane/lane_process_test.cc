// Lanes between processes, one of which is killed.
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "millrace/base/fd.h"
#include "millrace/net/lane/lane_testing.h"

extern char** environ;

namespace millrace::net {
namespace {

constexpr char kChildVariable[] = "MILLRACE_LANE_TEST_CHILD";
constexpr size_t kLarge = 30'000'000;

// This program once more, as one test, with what to do there.
class Child {
 public:
  Child(const std::string& test, const std::string& argument) {
    int out[2];
    EXPECT_EQ(pipe2(out, O_CLOEXEC), 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    const std::string filter = "--gtest_filter=LaneChild." + test;
    const std::string variable = absl::StrCat(kChildVariable, "=", argument);
    std::vector<char*> environment;
    for (char** at = environ; *at != nullptr; ++at) environment.push_back(*at);
    environment.push_back(const_cast<char*>(variable.c_str()));
    environment.push_back(nullptr);
    char program[] = "/proc/self/exe";
    char* arguments[] = {program, const_cast<char*>(filter.c_str()), nullptr};
    EXPECT_EQ(posix_spawn(&pid_, program, &actions, nullptr, arguments, environment.data()), 0);
    posix_spawn_file_actions_destroy(&actions);
    out_ = Fd(out[0]);
    close(out[1]);
  }
  ~Child() { Kill(); }
  void Kill() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(std::exchange(pid_, 0), nullptr, 0);
  }
  void Wait() { waitpid(std::exchange(pid_, 0), nullptr, 0); }
  // The number behind "port " in what the child prints.
  int Port() {
    std::string text;
    char c;
    while (read(out_.get(), &c, 1) == 1) {
      if (c != '\n') {
        text += c;
        continue;
      }
      int port = 0;
      if (absl::StartsWith(text, "port ") && absl::SimpleAtoi(text.substr(5), &port)) return port;
      text.clear();
    }
    ADD_FAILURE() << "the child did not say its port";
    return 0;
  }

 private:
  pid_t pid_ = 0;
  Fd out_;
};

// A server at the given port; "Get" answers with a large piece, "GetAndDie" and "StreamAndDie" are killed right behind it.
TEST(LaneChild, Serve) {
  const char* const argument = std::getenv(kChildVariable);
  if (argument == nullptr) GTEST_SKIP() << "it is what a process does that LaneProcessTest starts";
  HeldCalls held;
  TestService service;
  const std::string text = Pattern(kLarge);
  service.On("Echo", Echo).On("Hold", held.Handler());
  service.On("GetAndDie", [&](std::shared_ptr<IncomingCall> call) {
    call->Reply(Bytes::Of(text));
    kill(getpid(), SIGKILL);
  });
  service.On("StreamAndDie", [&](std::shared_ptr<IncomingCall> call) {
    for (int i = 0; i < 5; ++i) call->Send(Bytes::Of(text));
    kill(getpid(), SIGKILL);
  });
  auto transport = NewLane();
  auto listener = transport->Listen(absl::StrCat("localhost:", argument), &service);
  ASSERT_TRUE(listener.ok()) << listener.status();
  std::printf("\nport %d\n", (*listener)->port());
  std::fflush(stdout);
  Notification().Wait();
}

// A client that sends large requests to the given port until it is killed, which it does itself behind one of them.
TEST(LaneChild, Send) {
  const char* const argument = std::getenv(kChildVariable);
  if (argument == nullptr) GTEST_SKIP() << "it is what a process does that LaneProcessTest starts";
  auto transport = NewLane();
  auto channel = transport->Connect(absl::StrCat("localhost:", argument));
  ASSERT_TRUE(HasLane(*channel));
  const std::string text = Pattern(kLarge);
  for (int i = 0; i < 3; ++i) channel->Call(TestService::FullName("Check"), Bytes::Of(text), {.every_step = true}, [](auto) {});
  kill(getpid(), SIGKILL);
}

class LaneProcessTest : public ::testing::Test {
 protected:
  std::unique_ptr<Transport> client_ = NewLane();
};

TEST_F(LaneProcessTest, AKilledPeerFailsTheCallsInFlightAndTheNextOneIsReachedByGrpcAndThenByALane) {
  auto child = std::make_unique<Child>("Serve", "0");
  const int port = child->Port();
  auto channel = client_->Connect(absl::StrCat("localhost:", port));
  for (int round = 0; round < 2; ++round) {
    ASSERT_TRUE(HasLane(*channel));
    EXPECT_EQ(Outgoing(*client_).kind, "shm");
    Answer held;
    channel->Call(TestService::FullName("Hold"), {}, {.every_step = true}, held.Done());
    Answer stream;
    channel->Stream(TestService::FullName("Hold"), {}, {}, [](Bytes) {}, stream.Done());
    EXPECT_TRUE(CallOn(*channel, "Echo").ok());
    child->Kill();
    for (const Answer& answer : {held, stream}) {
      ASSERT_TRUE(answer.notification().WaitFor(absl::Seconds(30)));
      EXPECT_EQ(answer.status().code(), absl::StatusCode::kUnavailable);
      EXPECT_TRUE(absl::StrContains(answer.status().message(), channel->address())) << answer.status();
    }
    EXPECT_FALSE(channel->streams());
    EXPECT_EQ(CallOn(*channel, "Echo").status().code(), absl::StatusCode::kUnavailable);
    EXPECT_EQ(Outgoing(*client_).kind, "grpc");
    child = std::make_unique<Child>("Serve", absl::StrCat(port));
    ASSERT_EQ(child->Port(), port);
    EXPECT_TRUE(CallOn(*channel, "Echo").ok());
  }
  EXPECT_TRUE(HasLane(*channel));
}

TEST_F(LaneProcessTest, WhatAKilledPeerAnnouncedIsWholeOrAnError) {
  const std::string expected = Pattern(kLarge);
  for (int round = 0; round < 4; ++round) {
    Child child("Serve", "0");
    auto channel = client_->Connect(absl::StrCat("localhost:", child.Port()));
    ASSERT_TRUE(HasLane(*channel));
    std::atomic<int> wrong{0};
    Answer answer;
    if (round % 2 == 0) {
      channel->Call(TestService::FullName("GetAndDie"), {}, {.every_step = true}, answer.Done());
    } else {
      channel->Stream(TestService::FullName("StreamAndDie"), {}, {}, [&](Bytes message) { wrong += message.Flatten() != expected; }, answer.Done());
    }
    ASSERT_TRUE(answer.notification().WaitFor(absl::Seconds(30)));
    if (answer.result().ok()) {
      EXPECT_TRUE(answer.result()->Flatten() == expected);
    } else {
      EXPECT_EQ(answer.status().code(), absl::StatusCode::kUnavailable) << answer.status();
      EXPECT_TRUE(absl::StrContains(answer.status().message(), channel->address())) << answer.status();
    }
    EXPECT_EQ(wrong, 0);
  }
}

TEST_F(LaneProcessTest, AServerOutlivesClientsThatAreKilledBehindLargeRequests) {
  const std::string expected = Pattern(kLarge);
  std::atomic<int> wrong{0};
  TestService service;
  service.On("Echo", Echo).On("Check", [&](std::shared_ptr<IncomingCall> call) {
    wrong += call->request().Flatten() != expected;
    call->Reply(Bytes());
  });
  auto server = NewLane();
  auto listener = server->Listen("localhost:0", &service);
  ASSERT_TRUE(listener.ok()) << listener.status();
  for (int round = 0; round < 3; ++round) {
    Child child("Send", absl::StrCat((*listener)->port()));
    child.Wait();
  }
  EXPECT_TRUE(WaitUntil([&] { return server->status().peers.empty() && server->status().received_blocks == 0; }));
  EXPECT_EQ(wrong, 0);
  auto channel = client_->Connect(absl::StrCat("localhost:", (*listener)->port()));
  EXPECT_TRUE(HasLane(*channel));
  EXPECT_TRUE(CallOn(*channel, "Echo").ok());
}

}  // namespace
}  // namespace millrace::net
