// millrace status: what the tasks of a cluster are doing, and what they wait for.
#include <algorithm>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/strip.h"
#include "millrace/base/mutex.h"
#include "millrace/cluster/bottleneck.h"
#include "millrace/cluster/cluster_spec.h"
#include "millrace/cluster/hang_report.h"
#include "millrace/net/grpc/grpc_transport.h"
#include "millrace/tools/command.h"
#include "millrace/tools/job_status.h"
#include "millrace/tools/status_report.h"
#include "millrace/tools/status_traffic.h"
#include "millrace/tools/tls_flags.h"

namespace millrace {
namespace {

struct StatusFlags {
  std::string target;
  int job = 0;
  TlsFlags tls;
  double timeout = 5;
  double hang_after = 10;
  double watch = 0;
  double rates = 0;
  std::vector<std::string> ceilings;
  bool json = false;
};

int Fail(const Status& status) {
  std::cerr << "millrace status: " << status.message() << "\n";
  return 2;
}

// Where bytes between tasks are counted against: what was measured before, and for one host, unless that was, what memory gives now.
StatusOr<Ceilings> FindCeilings(const StatusFlags& flags) {
  MR_ASSIGN_OR_RETURN(Ceilings ceilings, ReadCeilings(flags.ceilings));
  if (ceilings.same_host == 0) ceilings.same_host = MeasureCopies();
  return ceilings;
}

// `last` is what was seen the last time, if there was one, and then what was seen now.
int ShowCluster(const StatusFlags& flags, const std::string& address, const Ceilings& ceilings, net::Transport* transport, std::vector<TaskView>* last) {
  const std::string target = absl::StrCat("grpc://", address);
  if (flags.rates > 0 && last->empty()) {
    *last = AskCluster(transport, address, absl::Seconds(flags.timeout));
    Notification never;
    never.WaitFor(absl::Seconds(flags.rates));
  }
  std::vector<TaskView> tasks = AskCluster(transport, address, absl::Seconds(flags.timeout));
  const HangReport hang = ExplainHang(tasks, absl::Seconds(flags.hang_after));
  std::optional<Bottleneck> bottleneck;
  if (!last->empty()) bottleneck = FindBottleneck(*last, tasks, ceilings);
  const Bottleneck* found = bottleneck.has_value() ? &*bottleneck : nullptr;
  std::cout << (flags.json ? StatusJson(target, tasks, hang, found) : StatusText(target, tasks, hang, found)) << std::flush;
  const bool all_answer = std::all_of(tasks.begin(), tasks.end(), [](const TaskView& task) { return task.answer.ok(); });
  *last = std::move(tasks);
  return !all_answer ? 1 : IsHang(hang) ? 3 : 0;
}

// Once, or again and again until nobody reads any more.
int Show(const StatusFlags& flags, absl::FunctionRef<int()> once) {
  Notification never;
  while (true) {
    const int code = once();
    if (flags.watch == 0 || code == 2) return code;
    if (!std::cout) return 0;
    never.WaitFor(absl::Seconds(flags.watch));
    if (!flags.json) std::cout << "\n";
  }
}

int ShowStatus(const StatusFlags& flags) {
  if (!(flags.timeout > 0)) return Fail(InvalidArgument("--timeout is ", flags.timeout, "; give a number of seconds above 0"));
  if (!(flags.hang_after >= 0)) return Fail(InvalidArgument("--hang_after is ", flags.hang_after, "; give a number of seconds"));
  if (!(flags.watch >= 0)) return Fail(InvalidArgument("--watch is ", flags.watch, "; give a number of seconds"));
  if (!(flags.rates >= 0)) return Fail(InvalidArgument("--rates is ", flags.rates, "; give a number of seconds"));
  if (flags.target.empty() && (flags.rates > 0 || !flags.ceilings.empty())) return Fail(InvalidArgument("--rates and --ceilings need a --target"));
  if (flags.target.empty()) return Show(flags, [&] { return ShowJobs(flags.job, absl::Seconds(flags.timeout), flags.json); });
  if (flags.job != 0) return Fail(InvalidArgument("give either --target or --job"));
  absl::string_view address = flags.target;
  absl::ConsumePrefix(&address, "grpc://");
  if (StatusOr<HostPort> parsed = HostPort::Parse(address); !parsed.ok()) {
    return Fail(InvalidArgument("--target: ", parsed.status().message(), ", as in grpc://localhost:2222"));
  }
  StatusOr<std::shared_ptr<const net::TlsCredentials>> tls = flags.tls.Read();
  if (!tls.ok()) return Fail(tls.status());
  const std::unique_ptr<net::Transport> transport = net::NewGrpcTransport({.tls = *tls});
  StatusOr<Ceilings> ceilings = Ceilings();
  if (flags.rates > 0 || flags.watch > 0 || !flags.ceilings.empty()) ceilings = FindCeilings(flags);
  if (!ceilings.ok()) return Fail(InvalidArgument("--ceilings: ", ceilings.status().message()));
  std::vector<TaskView> last;
  return Show(flags, [&] { return ShowCluster(flags, std::string(address), *ceilings, transport.get(), &last); });
}

}  // namespace

std::function<int()> AddStatus(CLI::App& app, CLI::App** command) {
  CLI::App* status = app.add_subcommand(
      "status", "Shows the jobs that run on this machine, or the tasks of a cluster: devices, sessions, running steps, and everything that is waited for");
  auto flags = std::make_shared<StatusFlags>();
  status->add_option("--target", flags->target, "Any task of a cluster: grpc://host:port. Without it: the jobs of `millrace launch` on this machine");
  status->add_option("--job", flags->job, "Only the job whose launcher has this pid");
  status->add_option("--timeout", flags->timeout, "Seconds that a task may take to answer")->capture_default_str();
  status->add_option("--hang_after", flags->hang_after, "Seconds that a task may wait, while no step of its session ends, before it is said who waits for what and why")
      ->capture_default_str();
  status->add_option("--watch", flags->watch, "Asks again after so many seconds, until it is interrupted; 0: once")->capture_default_str();
  status->add_option("--rates", flags->rates, "Asks twice, so many seconds apart (1), and says what each task did meanwhile and which of them is the bottleneck; --watch does so from the second time on")
      ->expected(0, 1)
      ->default_str("1");
  status->add_option("--ceilings", flags->ceilings, "A file of `millrace bench-net --json`: what bytes per second are a share of; may be repeated. Without one of this host: how fast it copies memory now");
  status->add_flag("--json", flags->json, "One JSON object, for programs");
  flags->tls.Add(status, "this client's");
  status->footer("Exit code: 0 when all tasks (or launchers) answered, 1 when one did not, 2 for a mistake in the flags, 3 when the cluster hangs.\n"
                 "Examples:\n"
                 "  millrace status\n"
                 "  millrace status --target grpc://localhost:2222\n"
                 "  millrace status --target grpc://localhost:2222 --rates");
  *command = status;
  return [flags] { return ShowStatus(*flags); };
}

}  // namespace millrace
