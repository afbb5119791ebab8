// The command line and the report that the runners of golden and gradient cases share.
#pragma once

#include <functional>
#include <string>

#include "tests/golden/run_case.h"

namespace millrace::golden {

using CaseFn = std::function<Outcome(const CaseFolder&, const Case&, const SessionOptions&, Places*)>;

struct Flags {
  std::string cases;     // folder or archive
  std::string family;    // only these
  std::string name;      // only cases whose name contains this
  std::string expected;  // file with the least number of passed cases by family
  bool update_expected = false;
  bool verbose = false;
  bool list_missing_ops = false;
  bool no_passes = false;
  int threads = 0;
  bool places = false;     // runs what passes once more, traced, and says where its nodes ran
  std::string device;      // what every node asks for that asks for nothing itself
  std::string target;      // the server that runs the cases, started in their folder; empty: this process
  bool over_grpc = false;  // the same with a server of this process
};

// Runs the chosen cases, prints the table, and compares with the expectations. Returns the
// program's exit status: 0 when enough passed.
int RunAndReport(const Flags& flags, const CaseFn& run);

}  // namespace millrace::golden
