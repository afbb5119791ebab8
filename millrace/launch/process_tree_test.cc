#include "millrace/launch/process_tree.h"

#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "millrace/base/fd.h"
#include "millrace/launch/exit_status.h"
#include "millrace/launch/spawn.h"
#include "millrace/net/held_port.h"

namespace millrace::launch {
namespace {

using ::testing::HasSubstr;

ExitStatus Wait(pid_t pid) {
  int status = 0;
  EXPECT_EQ(waitpid(pid, &status, 0), pid);
  return ExitStatus::OfWait(status);
}

std::string ReadAll(int fd) {
  std::string text;
  char bytes[4096];
  ssize_t size;
  while ((size = read(fd, bytes, sizeof(bytes))) > 0) text.append(bytes, size);
  return text;
}

bool CanBind(int port) {
  Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  return bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
}

TEST(Spawn, GivesTheProgramItsDescriptorsAndNoOthers) {
  StatusOr<Pipe> out = Pipe::Make();
  ASSERT_TRUE(out.ok());
  // A descriptor that exec would keep.
  Fd open_one(dup(0));
  SpawnError error;
  const pid_t pid = Spawn({.arguments = {"sh", "-c", "echo $A; ls /proc/self/fd | wc -l"},
                           .environment = {"A=b c"},
                           .descriptors = {-1, out->write.get(), -1}},
                          &error);
  ASSERT_GT(pid, 0) << error.text;
  out->write.Reset();
  EXPECT_EQ(ReadAll(out->read.get()), "b c\n4\n");  // 0, 1, 2 and the folder
  EXPECT_TRUE(Wait(pid).ok());
}

TEST(Spawn, SaysWhyAProgramCannotBeRun) {
  SpawnError error;
  EXPECT_EQ(Spawn({.arguments = {"/no/such/program"}}, &error), -1);
  EXPECT_EQ(error.number, ENOENT);
  EXPECT_EQ(error.text, "/no/such/program: No such file or directory");
  EXPECT_EQ(Spawn({.arguments = {"no_such_program_in_path"}}, &error), -1);
  EXPECT_EQ(error.number, ENOENT);
  EXPECT_EQ(Spawn({.arguments = {"/etc/passwd"}}, &error), -1);
  EXPECT_EQ(error.number, EACCES);
}

TEST(ProcessTree, FindsAndEndsWhatIsBelow) {
  SpawnError error;
  const pid_t pid = Spawn({.arguments = {"sh", "-c", "setsid sleep 1000 & sleep 1000"}}, &error);
  ASSERT_GT(pid, 0);
  std::vector<ProcessId> found;
  // The shell, and both once it has started them.
  while ((found = Descendants(getpid())).size() < 3) usleep(1000);
  for (const ProcessId& process : found) EXPECT_TRUE(SignalProcess(process, SIGKILL));
  EXPECT_EQ(Wait(pid).signal, SIGKILL);
  while (!Descendants(getpid()).empty()) usleep(1000);
}

TEST(ProcessTree, AnotherProcessWithThePidIsLeftAlone) {
  SpawnError error;
  const pid_t pid = Spawn({.arguments = {"sleep", "1000"}}, &error);
  ASSERT_GT(pid, 0);
  const std::vector<ProcessId> found = Descendants(getpid());
  const auto mine = std::find_if(found.begin(), found.end(), [&](const ProcessId& p) { return p.pid == pid; });
  ASSERT_NE(mine, found.end());
  ProcessId older = *mine;
  older.start -= 1;
  EXPECT_FALSE(SignalProcess(older, SIGKILL));
  EXPECT_EQ(waitpid(pid, nullptr, WNOHANG), 0);
  EXPECT_TRUE(SignalProcess(*mine, SIGKILL));
  EXPECT_EQ(Wait(pid).signal, SIGKILL);
  // Gone: nobody gets it.
  EXPECT_FALSE(SignalProcess(*mine, SIGKILL));
}

TEST(HeldPort, IsNobodyElsesUntilItIsReleased) {
  StatusOr<net::HeldPort> held = net::HeldPort::Take(), other = net::HeldPort::Take();
  ASSERT_TRUE(held.ok()) << held.status();
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_NE(held->port(), other->port());
  EXPECT_FALSE(CanBind(held->port()));
  held->Release();
  EXPECT_TRUE(CanBind(held->port()));
}

TEST(ExitStatus, IsToldAsAShellDoes) {
  EXPECT_EQ(ExitStatus{.code = 3}.ToString(), "exited with code 3");
  EXPECT_EQ(ExitStatus{.signal = SIGKILL}.ToString(), "was killed by SIGKILL");
  EXPECT_EQ(ExitStatus{.signal = SIGKILL}.ShellCode(), 137);
  EXPECT_THAT(SignalName(SIGRTMIN + 3), HasSubstr("signal "));
}

}  // namespace
}  // namespace millrace::launch
