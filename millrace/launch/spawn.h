// Starts programs.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "millrace/base/fd.h"
#include "millrace/base/status.h"

namespace millrace::launch {

struct Pipe {
  Fd read, write;  // both closed on exec
  static StatusOr<Pipe> Make();
};

void SetNonBlocking(int fd);

// Raises this process's limit of open files to the hard limit. Programs that it starts get the original limit.
void RaiseFileLimit();

struct SpawnOptions {
  std::vector<std::string> arguments = {};    // the program first, looked up in PATH
  std::string path = {};                      // the file to run, if it is not arguments[0]
  std::vector<std::string> environment = {};  // "NAME=VALUE", added to this process's environment
  // This process's descriptors that become 0, 1, 2, ... of the program; -1 stands for /dev/null. The program gets no
  // others.
  std::vector<int> descriptors = {-1, -1, -1};
  int parent_death_signal = 0;  // sent to the program when this process ends; 0: none
};

struct SpawnError {
  int number = 0;  // errno
  std::string text;
};

// Starts the program as the leader of a new session, with default signal handling, and returns its pid. On failure
// returns -1, sets `error` and leaves no process behind. The calling process must have one thread.
pid_t Spawn(const SpawnOptions& options, SpawnError* error);

}  // namespace millrace::launch
