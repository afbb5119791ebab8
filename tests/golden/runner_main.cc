// golden_runner: runs a directory or archive of golden cases and prints how many pass in each family.
#include <cstdlib>
#include <filesystem>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "tests/golden/mutate.h"
#include "tests/golden/report.h"
#include "tests/late/late_device.h"
#include "tests/split/split_session.h"

int main(int argc, char** argv) {
  using namespace millrace::golden;  // NOLINT
  CLI::App app("Runs golden cases (graphs with TensorFlow's results) and reports for each family how many pass.");
  Flags flags;
  bool gradients = false;
  bool finite_differences = false;
  app.add_option("cases", flags.cases, "folder with an index.jsonl, or a .tar.xz of one")->required();
  app.add_option("--family", flags.family, "only the cases of this family");
  app.add_option("--case", flags.name, "only cases whose name contains this");
  app.add_option("--expect", flags.expected, "fail if fewer cases pass than this file requires");
  app.add_flag("--update-expected", flags.update_expected, "write that file instead")->needs("--expect");
  app.add_flag("-v,--verbose", flags.verbose, "list each case that fails, and why");
  app.add_flag("--list-missing-ops", flags.list_missing_ops, "list the ops that cases need and the library lacks");
  app.add_flag("--no-passes", flags.no_passes, "run the graphs as they are, without rewrites");
  app.add_option("--threads", flags.threads, "threads of a session (default: one per core)");
  auto* target =
      app.add_option("--target", flags.target,
                     "run the cases at this server (grpc://host:port), which was started in the folder of the cases");
  app.add_flag("--over-grpc", flags.over_grpc, "run the cases at a server of this process, over the network")
      ->excludes(target);
  app.add_flag("--gradients", gradients, "the cases are gradient cases: differentiate, and compare the gradients");
  app.add_flag("--finite-differences", finite_differences,
               "the cases are gradient cases: differentiate, and compare with differences of results");
  app.add_option("--device", flags.device,
                 "ask for this device (/device:GPU:0) for every node that asks for none; a node without a kernel there "
                 "runs on the CPU")
      ->excludes(target);
  bool late = false;
  app.add_flag("--late", late, "with a GPU that is made of host memory (tests/late)")->excludes(target);
  int split = 0;
  int64_t split_seed = 0;
  auto* splits =
      app.add_option("--split", split, "partition each step among this many tasks, with nodes placed at random");
  app.add_option("--split-seed", split_seed, "random seed of the placement of nodes")->needs(splits);
  bool mutate = false;
  MutationFlags mutation;
  auto* mutations =
      app.add_flag("--mutate", mutate, "change the cases at random and run them: nothing may crash or hang");
  app.add_option("--seed", mutation.seed, "random seed of the changes")->needs(mutations);
  app.add_option("--seconds", mutation.seconds, "how many seconds to run")->needs(mutations);
  app.add_option("--first", mutation.first, "number of the first change")->needs(mutations);
  app.add_option("--count", mutation.count, "how many changes to make, instead of --seconds")->needs(mutations);
  CLI11_PARSE(app, argc, argv);
  setenv("MILLRACE_TF32", "0", 0);  // the answers are of float
  if (late) millrace::late::UseLateGpus(1);
  if (mutate) {
    mutation.cases = flags.cases;
    mutation.family = flags.family;
    mutation.name = flags.name;
    mutation.verbose = flags.verbose;
    return RunMutations(mutation);
  }
  if (split > 0) {
    millrace::split::RegisterSplitSessions();
    flags.target = absl::StrCat("split:", split, ":", split_seed);
  }
  flags.places = (late || !flags.device.empty()) && !finite_differences;
  // Cases run in their own folder.
  if (!flags.expected.empty()) flags.expected = std::filesystem::absolute(flags.expected).string();
  if (finite_differences) {
    return RunAndReport(flags, [](const CaseFolder& folder, const Case& c, const millrace::SessionOptions& options,
                                  Places*) { return CheckFiniteDifferences(folder, c, options); });
  }
  if (gradients) return RunAndReport(flags, RunGradientCase);
  return RunAndReport(flags, RunCase);
}
