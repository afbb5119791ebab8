// This test program once more, as a process of its own: what is killed, stopped or left alone in tests. For tests only.
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

// Runs one test of this program, which asks Argument() what to do there. Killed with the object.
class ChildProcess {
 public:
  // Null in the parent: the test is for others and skips itself.
  static const char* Argument() { return std::getenv(kVariable); }
  // In the child: tells Port() of the parent.
  static void SayPort(int port) {
    std::printf("\nport %d\n", port);
    std::fflush(stdout);
  }

  // `test` is its full name.
  ChildProcess(const std::string& test, const std::string& argument) {
    int out[2];
    EXPECT_EQ(pipe2(out, O_CLOEXEC), 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    const std::string filter = "--gtest_filter=" + test;
    const std::string variable = absl::StrCat(kVariable, "=", argument);
    std::vector<char*> environment;
    for (char** at = environ; *at != nullptr; ++at) environment.push_back(*at);
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
  void Wait() { waitpid(std::exchange(pid_, 0), nullptr, 0); }
  // Returns when it has stopped, so that it does nothing from then on.
  void Stop() {
    kill(pid_, SIGSTOP);
    int status = 0;
    EXPECT_EQ(waitpid(pid_, &status, WUNTRACED), pid_);
    EXPECT_TRUE(WIFSTOPPED(status));
  }
  void Continue() { kill(pid_, SIGCONT); }
  pid_t pid() const { return pid_; }

  // Waits for what SayPort says.
  int Port() {
    std::string text;
    char c;
    while (read(out_, &c, 1) == 1) {
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
  static constexpr char kVariable[] = "MILLRACE_TEST_CHILD";

  pid_t pid_ = 0;
  int out_ = -1;
};

}  // namespace millrace
