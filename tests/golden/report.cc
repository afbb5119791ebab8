#include "tests/golden/report.h"

#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "millrace/cluster/server.h"

namespace millrace::golden {
namespace {

struct Tally {
  int passed = 0;
  int total = 0;
  int needs_op = 0;
  int failed() const { return total - passed - needs_op; }
};
using Tallies = std::map<std::string, Tally>;

// Prints the current case if the program crashes.
const char* g_current_case = "";

void OnCrash(int signal) {
  const auto write = [](const char* text) { (void)!::write(2, text, std::strlen(text)); };
  write("\ncrashed in case ");
  write(g_current_case);
  write("\n");
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

void PrintTallies(const Tallies& tallies) {
  const auto row = [](const std::string& family, const Tally& t) {
    absl::PrintF("%-14s %5d of %5d passed  %5d need an op  %5d failed\n", family, t.passed, t.total, t.needs_op,
                 t.failed());
  };
  Tally sum;
  for (const auto& [family, t] : tallies) {
    row(family, t);
    sum.passed += t.passed;
    sum.total += t.total;
    sum.needs_op += t.needs_op;
  }
  row("all", sum);
}

void PrintMissingOps(const std::map<std::string, int>& missing) {
  std::multimap<int, std::string, std::greater<>> by_count;
  for (const auto& [op, count] : missing) by_count.emplace(count, op);
  absl::PrintF("%d ops are missing; cases that need each:\n", missing.size());
  for (const auto& [count, op] : by_count) absl::PrintF("%6d %s\n", count, op);
}

StatusOr<std::map<std::string, int>> ReadExpected(const std::string& path) {
  std::ifstream in(path);
  if (!in) return NotFound("cannot read ", path);
  std::map<std::string, int> expected;
  std::string line;
  while (std::getline(in, line)) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream words(line);
    std::string family;
    int least = 0;
    if (!(words >> family >> least)) return DataLoss(path, ": not a family and a number: ", line);
    expected[family] = least;
  }
  return expected;
}

// The name under which a file of expectations has the number of nodes on the GPU.
constexpr char kNodesOnGpu[] = "nodes_on_gpu";

Status WriteExpected(const std::string& path, const Tallies& tallies, const Places* places) {
  std::ofstream out(path);
  out << "# The least number of cases of each family that pass; written by --update-expected. It only goes up.\n";
  for (const auto& [family, t] : tallies) out << family << " " << t.passed << "\n";
  if (places != nullptr) out << kNodesOnGpu << " " << places->on_gpu() << "\n";
  out.close();
  return out ? absl::OkStatus() : Internal("cannot write ", path);
}

// Whether as many pass as the file says, family by family, or in family `only`.
bool MeetsExpectations(const std::map<std::string, int>& expected, const Tallies& tallies, const std::string& path,
                       const std::string& only, const Places* places) {
  bool ok = true;
  for (const auto& [family, least] : expected) {
    if (family == kNodesOnGpu) {
      if (places == nullptr || !only.empty() || places->on_gpu() == least) continue;
      if (places->on_gpu() > least) {
        absl::PrintF("%d nodes ran on the GPU, more than %s asks for: raise it with --update-expected\n",
                     places->on_gpu(), path);
        continue;
      }
      absl::PrintF("FAILED: %d nodes ran on the GPU; %d did before (%s)\n", places->on_gpu(), least, path);
      ok = false;
      continue;
    }
    if (!only.empty() && family != only) continue;
    const auto at = tallies.find(family);
    const int passed = at == tallies.end() ? 0 : at->second.passed;
    if (passed < least) {
      absl::PrintF("FAILED: %d cases of %s pass; %d did before (%s)\n", passed, family, least, path);
      ok = false;
    }
  }
  for (const auto& [family, t] : tallies) {
    const auto at = expected.find(family);
    if (t.passed > (at == expected.end() ? 0 : at->second)) {
      absl::PrintF("%d cases of %s pass, more than %s asks for: raise it with --update-expected\n", t.passed, family,
                   path);
    }
  }
  return ok;
}

}  // namespace

int RunAndReport(const Flags& flags, const CaseFn& run) {
  StatusOr<std::unique_ptr<CaseFolder>> folder = CaseFolder::Open(flags.cases);
  std::map<std::string, int> expected;
  Status status = folder.status();
  if (status.ok() && !flags.expected.empty() && !flags.update_expected) {
    auto read = ReadExpected(flags.expected);
    status = read.status();
    if (status.ok()) expected = *std::move(read);
  }
  if (!status.ok()) {
    absl::FPrintF(stderr, "%s\n", status.ToString());
    return 2;
  }

  for (int signal : {SIGSEGV, SIGABRT, SIGFPE, SIGBUS, SIGILL}) std::signal(signal, OnCrash);
  SessionOptions options;
  options.intra_op_threads = flags.threads;
  options.inter_op_threads = flags.threads;
  if (flags.no_passes) options.passes = PassOptions::None();
  options.target = flags.target;
  options.allow_soft_placement = !flags.device.empty();
  (*folder)->set_device(flags.device);
  std::unique_ptr<Server> server;
  if (flags.over_grpc) {
    StatusOr<std::unique_ptr<Server>> started =
        Server::CreateLocalServer({.intra_op_threads = flags.threads, .inter_op_threads = flags.threads});
    if (!started.ok()) {
      absl::FPrintF(stderr, "%s\n", started.status().ToString());
      return 2;
    }
    server = *std::move(started);
    options.target = server->target();
    options.config.mutable_rpc_options()->set_use_rpc_for_inprocess_master(true);
  }
  // A server outlives the cases, so the state that they leave in it is cleared.
  options.isolate_session_state = !options.target.empty();

  std::string first_failure;
  Tallies tallies;
  std::map<std::string, int> missing;
  Places places;
  for (const Case& c : (*folder)->cases()) {
    if (!flags.family.empty() && c.family != flags.family) continue;
    if (!absl::StrContains(c.name, flags.name)) continue;
    g_current_case = c.name.c_str();
    Outcome outcome = run(**folder, c, options, nullptr);
    // A trace waits for each kernel, so that only the first run is as asynchronous as it can be.
    if (flags.places && outcome.kind == Outcome::kPassed) outcome = run(**folder, c, options, &places);
    if (outcome.kind == Outcome::kNotMeant) continue;
    Tally& tally = tallies[c.family];
    ++tally.total;
    tally.passed += outcome.kind == Outcome::kPassed;
    tally.needs_op += outcome.kind == Outcome::kNeedsOp;
    for (const std::string& op : outcome.needs) ++missing[op];
    if (outcome.kind == Outcome::kFailed && first_failure.empty())
      first_failure = absl::StrCat(c.name, ": ", outcome.why);
    if (flags.verbose && outcome.kind == Outcome::kNeedsOp) {
      absl::PrintF("%s: needs op %s\n", c.name, absl::StrJoin(outcome.needs, ", "));
    } else if (flags.verbose && outcome.kind == Outcome::kFailed) {
      absl::PrintF("%s: FAILED: %s\n", c.name, outcome.why);
    }
  }
  if (tallies.empty()) {
    absl::FPrintF(stderr, "no case was chosen\n");
    return 2;
  }
  if (flags.list_missing_ops) PrintMissingOps(missing);
  PrintTallies(tallies);
  if (flags.places) {
    absl::PrintF("nodes: %d on the GPU, %d on the CPU\n", places.on_gpu(), places.on_cpu());
    if (flags.verbose) absl::PrintF("on the CPU: %s\n", places.CpuOps());
  }
  if (!first_failure.empty() && !flags.verbose) absl::PrintF("the first failure (-v lists all): %s\n", first_failure);
  if (flags.expected.empty()) {
    int failed = 0;
    for (const auto& [family, t] : tallies) failed += t.failed();
    return failed == 0 ? 0 : 1;
  }
  if (flags.update_expected) {
    status = WriteExpected(flags.expected, tallies, flags.places ? &places : nullptr);
    if (!status.ok()) absl::FPrintF(stderr, "%s\n", status.ToString());
    return status.ok() ? 0 : 2;
  }
  return MeetsExpectations(expected, tallies, flags.expected, flags.family, flags.places ? &places : nullptr) ? 0 : 1;
}

}  // namespace millrace::golden
