// Runs golden graphs with random errors.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "tests/golden/case.h"

namespace millrace::golden {

// A case as the messages that a client would send.
struct Program {
  pb::GraphDef graph;
  std::vector<pb::RunStepRequest> steps;
};

// Changes a few things in `program` at random: attributes, types, constants, feeds, edges. The same state of `random`
// gives the same changes. Returns a description of them.
std::string Mutate(Program* program, std::mt19937_64& random);

struct MutationFlags {
  std::string cases;
  std::string family;
  std::string name;
  uint64_t seed = 1;
  double seconds = 10;
  int64_t first = 0;   // number of the first mutation; with `count` 1, replays a failure
  int64_t count = -1;  // negative: until the time is up
  bool verbose = false;
};

// Runs mutated cases in a child process until the time is up. A crash or a hang is reported with the command that
// reproduces it, and the run continues after it. Returns the program's exit status: 0 if nothing crashed or hung.
int RunMutations(const MutationFlags& flags);

}  // namespace millrace::golden
