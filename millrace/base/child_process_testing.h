// Runs this test program again as a child process that a test can kill or stop. For tests only.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "millrace/base/clock.h"
#include "millrace/base/fd.h"

extern char** environ;

namespace millrace {

// Runs a single test of this program in a child process, where Argument() tells it what to do. The destructor kills the
// child. A child that neither says what is waited for nor ends in all the time that it has is killed, and is a failure
// that tells what it was doing.
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
    Reap();
  }
  void Wait() { WaitForEnd(); }
  // Returns the status of waitpid.
  int WaitForEnd() {
    if (pid_ <= 0) return 0;
    const Fd end(static_cast<int>(syscall(SYS_pidfd_open, pid_, 0)));
    if (end.ok() && !IsReadable(end.get(), Clock::Real()->Now() + patience_)) {
      ADD_FAILURE() << "the child has not ended: " << Describe();
      kill(pid_, SIGKILL);
    }
    return Reap();
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
  // For each wait from now on. By default, many times what any child needs on a machine with too much to do.
  void set_patience(absl::Duration patience) { patience_ = patience; }

  // Blocks until the child sends a line that starts with `beginning`, and stores the rest of it in `rest`. Returns
  // false if the child ends first.
  bool Hears(absl::string_view beginning, std::string* rest = nullptr) {
    const absl::Time deadline = Clock::Real()->Now() + patience_;
    std::string line;
    while (true) {
      if (!IsReadable(out_, deadline)) {
        ADD_FAILURE() << "the child has not said '" << beginning << "': " << Describe();
        Kill();
        return false;
      }
      char c;
      if (read(out_, &c, 1) != 1) return false;
      if (c != '\n') {
        line += c;
        continue;
      }
      absl::StrAppend(&heard_, line, "\n");
      if (heard_.size() > kMostHeard) heard_.erase(0, heard_.size() - kMostHeard);
      if (absl::StartsWith(line, beginning)) {
        if (rest != nullptr) *rest = line.substr(beginning.size());
        return true;
      }
      line.clear();
    }
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
  static constexpr size_t kMostHeard = 10000;

  // Whether it becomes readable, or its other end is closed, before the deadline.
  static bool IsReadable(int fd, absl::Time deadline) {
    while (true) {
      pollfd ready = {fd, POLLIN, 0};
      const int64_t left = absl::ToInt64Milliseconds(deadline - Clock::Real()->Now());
      if (poll(&ready, 1, static_cast<int>(std::max<int64_t>(left, 0))) > 0) return true;
      if (left <= 0) return false;
    }
  }
  int Reap() {
    int status = 0;
    waitpid(std::exchange(pid_, 0), &status, 0);
    return status;
  }
  // What the child is doing, and what it has said.
  std::string Describe() const {
    std::string text = absl::StrCat("after ", absl::FormatDuration(patience_), ", pid ", pid_);
    for (const char* file : {"status", "wchan"}) {
      std::stringstream content;
      content << std::ifstream(absl::StrCat("/proc/", pid_, "/", file)).rdbuf();
      absl::StrAppend(&text, "\n", file, ":\n", content.str());
    }
    return absl::StrCat(text, "\nit has said:\n", heard_);
  }

  absl::Duration patience_ = absl::Minutes(2);
  pid_t pid_ = 0;
  int out_ = -1;
  std::string heard_;  // the last lines
};

}  // namespace millrace
