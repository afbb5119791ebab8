#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <map>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "millrace/tensor/memory_limit.h"
#include "tests/golden/mutate.h"
#include "tests/golden/run_case.h"

namespace millrace::golden {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kHang = std::chrono::seconds(60);
constexpr absl::Duration kStepLimit = absl::Seconds(5);
constexpr size_t kMaxAllocation = 64 << 20;
// A child process is replaced after this many cases, so that leaks stay small.
constexpr int64_t kPerChild = 2000;

// What a child reports to its parent; in shared memory, so that it survives a crash of the child.
struct Progress {
  volatile int64_t mutation;
  volatile int64_t finished;
  volatile int64_t accepted;  // ran to a value rather than an error
  char what[4000];
};

std::vector<const Case*> ChooseCases(const CaseFolder& folder, const MutationFlags& flags) {
  std::vector<const Case*> chosen;
  for (const Case& c : folder.cases()) {
    if (!flags.family.empty() && c.family != flags.family) continue;
    if (!absl::StrContains(c.name, flags.name)) continue;
    const StatusOr<pb::GraphDef> graph = folder.ReadGraph(c);
    if (graph.ok() && MissingOps(*graph).empty() && graph->node_size() < 400) chosen.push_back(&c);
  }
  return chosen;
}

StatusOr<Program> ReadProgram(const CaseFolder& folder, const Case& c) {
  Program program;
  MR_ASSIGN_OR_RETURN(program.graph, folder.ReadGraph(c));
  for (int step = 1; step <= c.steps; ++step) {
    MR_ASSIGN_OR_RETURN(pb::RunStepRequest request, folder.ReadRequest(c, step));
    if (request.fetch_size() == 0 && request.target_size() == 0) {  // a gradient case: only the ys are named
      for (const std::string& y : c.ys) request.add_fetch(y);
    }
    program.steps.push_back(std::move(request));
  }
  return program;
}

Status RunProgram(const CaseFolder& folder, const Program& program) {
  MR_RETURN_IF_ERROR(folder.EnterWithEmptyTmp());
  SessionOptions options;
  options.intra_op_threads = 2;
  options.inter_op_threads = 1;
  options.operation_timeout = kStepLimit;
  MR_ASSIGN_OR_RETURN(const std::unique_ptr<Session> session, Session::Create(options));
  MR_RETURN_IF_ERROR(session->Extend(program.graph));
  for (const pb::RunStepRequest& request : program.steps) {
    MR_ASSIGN_OR_RETURN(const std::vector<Feed> feeds, FeedsOf(request));
    std::vector<Tensor> results;
    RunOptions run;
    run.timeout = kStepLimit;
    MR_RETURN_IF_ERROR(
        session->Run(run, feeds, std::vector<std::string>(request.fetch().begin(), request.fetch().end()),
                     std::vector<std::string>(request.target().begin(), request.target().end()), &results, nullptr));
  }
  return absl::OkStatus();
}

void RunOne(const CaseFolder& folder, const std::vector<const Case*>& cases, const MutationFlags& flags, int64_t number,
            Progress* progress) {
  std::mt19937_64 random(flags.seed * 1000003 + static_cast<uint64_t>(number));
  const Case& c = *cases[random() % cases.size()];
  progress->what[0] = 0;
  progress->mutation = number;
  StatusOr<Program> program = ReadProgram(folder, c);
  if (!program.ok()) return;
  const std::string what = Mutate(&*program, random);
  absl::SNPrintF(progress->what, sizeof(progress->what), "%s: %s", c.name, what);
  if (flags.verbose) absl::PrintF("%d %s\n", number, progress->what), std::fflush(stdout);
  const Status status = RunProgram(folder, *program);
  if (status.ok()) progress->accepted = progress->accepted + 1;
  if (flags.verbose) absl::PrintF("  %s\n", status.ToString().substr(0, 300)), std::fflush(stdout);
  progress->finished = progress->finished + 1;
}

[[noreturn]] void Child(const CaseFolder& folder, const std::vector<const Case*>& cases, const MutationFlags& flags,
                        int64_t first, Clock::time_point until, Progress* progress) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  SetMaxAllocation(kMaxAllocation);
  for (int64_t i = first; i < first + kPerChild; ++i) {
    if (flags.count >= 0 ? i >= flags.first + flags.count : Clock::now() >= until) break;
    RunOne(folder, cases, flags, i, progress);
  }
  progress->mutation = -1;
  std::fflush(nullptr);
  _exit(0);
}

// Waits for the child and kills it if it hangs. Returns how it ended, or "" on success.
std::string Wait(pid_t child, const Progress& progress) {
  int64_t last = -2;
  Clock::time_point since = Clock::now();
  while (true) {
    int status = 0;
    if (waitpid(child, &status, WNOHANG) == child) {
      if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return "";
      if (WIFSIGNALED(status)) return absl::StrFormat("ended by signal %d", WTERMSIG(status));
      return absl::StrFormat("exited with status %d", WEXITSTATUS(status));
    }
    if (progress.mutation != last) {
      last = progress.mutation;
      since = Clock::now();
    } else if (Clock::now() - since > kHang) {
      kill(child, SIGKILL);
      waitpid(child, &status, 0);
      return "hung";
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

}  // namespace

int RunMutations(const MutationFlags& flags) {
  const StatusOr<std::unique_ptr<CaseFolder>> folder = CaseFolder::Open(flags.cases);
  if (!folder.ok()) {
    absl::FPrintF(stderr, "%s\n", folder.status().ToString());
    return 2;
  }
  const std::vector<const Case*> cases = ChooseCases(**folder, flags);
  if (cases.empty()) {
    absl::FPrintF(stderr, "no case was chosen\n");
    return 2;
  }
  auto* progress = static_cast<Progress*>(
      mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  if (progress == MAP_FAILED) return 2;
  const Clock::time_point until = Clock::now() + std::chrono::milliseconds(static_cast<int64_t>(flags.seconds * 1000));
  int failures = 0;
  int64_t next = flags.first;
  while (flags.count >= 0 ? next < flags.first + flags.count : Clock::now() < until) {
    progress->mutation = next;
    std::fflush(nullptr);
    const pid_t child = fork();
    if (child < 0) return 2;
    if (child == 0) Child(**folder, cases, flags, next, until, progress);
    const std::string end = Wait(child, *progress);
    if (end.empty()) {
      next += kPerChild;
      continue;
    }
    ++failures;
    next = progress->mutation + 1;
    absl::PrintF("FAILED: mutation %d %s: %s\n", progress->mutation, end, progress->what);
    absl::PrintF("  again: golden_runner %s --mutate --seed %d --first %d --count 1%s\n", flags.cases, flags.seed,
                 progress->mutation,
                 absl::StrCat(flags.family.empty() ? "" : " --family " + flags.family,
                              flags.name.empty() ? "" : " --case " + flags.name));
    std::fflush(stdout);
  }
  absl::PrintF("%d mutations of %d cases with seed %d: %d gave a value, %d crashed or hung\n", progress->finished,
               cases.size(), flags.seed, progress->accepted, failures);
  munmap(progress, sizeof(Progress));
  return failures == 0 ? 0 : 1;
}

}  // namespace millrace::golden
