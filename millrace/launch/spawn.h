// Starting a program.
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

// Lets this process have as many descriptors as the system allows it. What it starts has the limit from before.
void RaiseFileLimit();

struct SpawnOptions {
  std::vector<std::string> arguments = {};    // the program first, looked up in PATH
  std::string path = {};                      // the file to run, where it is not arguments[0]
  std::vector<std::string> environment = {};  // "NAME=VALUE", over this process's
  // This process's descriptors for 0, 1, 2, ... of the program; -1: /dev/null. It gets no others.
  std::vector<int> descriptors = {-1, -1, -1};
  int parent_death_signal = 0;  // what it gets when this process ends
};

struct SpawnError {
  int number = 0;  // errno
  std::string text;
};

// The pid of the program, which leads a session of its own, with default signal handling. On failure -1, and `error` says why; nothing is left of it
// then. For processes of one thread.
pid_t Spawn(const SpawnOptions& options, SpawnError* error);

}  // namespace millrace::launch
