// Runs this test program again as a child process that a test can kill or stop. For tests only.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

extern char** environ;

namespace millrace {

// Runs a single test of this program in a child process, where Argument() tells it what to do. The destructor kills the
// child.
class ChildProcess {
 public:
  // The child's argument. Null in the parent, where such a test skips itself.
  static const char* Argument() { return std::getenv(kVariable); }
  // Called in the child: sends a line to the parent's Hears().
  static void Say(const std::string& line) {
    std::printf("\n%s\n", line.c_str());
    std::fflush(stdout);
  }
  // Called in the child: reports a port to the parent's Port().
  static void SayPort(int port) { Say(absl::StrCat("port ", port)); }

  // `test` is the full name of the test to run.
  ChildProcess(const std::string& test, const std::string& argument) {
    int out[2];
    EXPECT_EQ(pipe2(out, O_CLOEXEC), 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    const std::string filter = "--gtest_filter=" + test;
    const std::string variable = absl::StrCat(kVariable, "=", argument);
    std::vector<char*> environment;
    for (char** at = environ; *at != nullptr; ++at) {
      // The child's one test may belong to another shard than the parent's.
      if (!absl::StartsWith(*at, "GTEST_")) environment.push_back(*at);
    }
    environment.push_back(const_cast<char*>(variable.c_str()));
    environment.push_back(nullptr);
    char program[] = "/proc/self/exe";
    char* arguments[] = {program, const_cast<char*>(filter.c_str()), nullptr};
    EXPECT_EQ(posix_spawn(&pid_, program, &actions, nullptr, arguments, environment.data()), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(out[1]);
    out_ = out[0];
  }
  ~ChildProcess() {
    Kill();
    close(out_);
  }
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  void Kill() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    Wait();
  }
  void Wait() { WaitForEnd(); }
  // Returns the status of waitpid.
  int WaitForEnd() {
    int status = 0;
    waitpid(std::exchange(pid_, 0), &status, 0);
    return status;
  }
  // Sends SIGSTOP and returns once the child has stopped.
  void Stop() {
    kill(pid_, SIGSTOP);
    int status = 0;
    EXPECT_EQ(waitpid(pid_, &status, WUNTRACED), pid_);
    EXPECT_TRUE(WIFSTOPPED(status));
  }
  void Continue() { kill(pid_, SIGCONT); }
  pid_t pid() const { return pid_; }

  // Blocks until the child sends a line that starts with `beginning`, and stores the rest of it in `rest`. Returns
  // false if the child ends first.
  bool Hears(absl::string_view beginning, std::string* rest = nullptr) {
    std::string line;
    char c;
    while (read(out_, &c, 1) == 1) {
      if (c != '\n') {
        line += c;
        continue;
      }
      if (absl::StartsWith(line, beginning)) {
        if (rest != nullptr) *rest = line.substr(beginning.size());
        return true;
      }
      line.clear();
    }
    return false;
  }
  // Blocks until the child calls SayPort.
  int Port() {
    std::string text;
    int port = 0;
    if (!Hears("port ", &text) || !absl::SimpleAtoi(text, &port)) ADD_FAILURE() << "the child did not say its port";
    return port;
  }

 private:
  static constexpr char kVariable[] = "MILLRACE_TEST_CHILD";

  pid_t pid_ = 0;
  int out_ = -1;
};

}  // namespace millrace
