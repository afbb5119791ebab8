// millrace status: shows what the tasks of a cluster are doing and what they wait for.
#include <algorithm>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/strip.h"
#include "millrace/base/mutex.h"
#include "millrace/cluster/cluster_spec.h"
#include "millrace/cluster/watch/bottleneck.h"
#include "millrace/cluster/watch/hang_report.h"
#include "millrace/net/address.h"
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

// The bandwidth limits that traffic between tasks is compared with: those given, and for this host, if not given, how
// fast it copies memory now.
StatusOr<Ceilings> FindCeilings(const StatusFlags& flags) {
  MR_ASSIGN_OR_RETURN(Ceilings ceilings, ReadCeilings(flags.ceilings));
  if (ceilings.same_host == 0) ceilings.same_host = MeasureCopies();
  return ceilings;
}

// `last` is the previous snapshot, if there is one; it is replaced by the current one.
int ShowCluster(const StatusFlags& flags, const std::string& address, const Ceilings& ceilings,
                net::Transport* transport, std::vector<TaskView>* last) {
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
  std::cout << (flags.json ? StatusJson(target, tasks, hang, found) : StatusText(target, tasks, hang, found))
            << std::flush;
  const bool all_answer =
      std::all_of(tasks.begin(), tasks.end(), [](const TaskView& task) { return task.answer.ok(); });
  *last = std::move(tasks);
  return !all_answer ? 1 : IsHang(hang) ? 3 : 0;
}

// Calls `once`, and with --watch repeats it until nobody reads the output any more.
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
  if (!(flags.timeout > 0))
    return Fail("status", InvalidArgument("--timeout is ", flags.timeout, "; give a number of seconds above 0"), 2);
  if (!(flags.hang_after >= 0))
    return Fail("status", InvalidArgument("--hang_after is ", flags.hang_after, "; give a number of seconds"), 2);
  if (!(flags.watch >= 0))
    return Fail("status", InvalidArgument("--watch is ", flags.watch, "; give a number of seconds"), 2);
  if (!(flags.rates >= 0))
    return Fail("status", InvalidArgument("--rates is ", flags.rates, "; give a number of seconds"), 2);
  if (flags.target.empty() && (flags.rates > 0 || !flags.ceilings.empty()))
    return Fail("status", InvalidArgument("--rates and --ceilings need a --target"), 2);
  if (flags.target.empty())
    return Show(flags, [&] { return ShowJobs(flags.job, absl::Seconds(flags.timeout), flags.json); });
  if (flags.job != 0) return Fail("status", InvalidArgument("give either --target or --job"), 2);
  absl::string_view address = flags.target;
  absl::ConsumePrefix(&address, "grpc://");
  if (const StatusOr<net::HostPort> parsed = net::ParseHostPort(address); !parsed.ok()) {
    return Fail("status", InvalidArgument("--target: ", parsed.status().message(), ", as in grpc://localhost:2222"), 2);
  }
  StatusOr<std::shared_ptr<const TlsCredentials>> tls = flags.tls.Read();
  if (!tls.ok()) return Fail("status", tls.status(), 2);
  if (*tls == nullptr) tls = TlsFromEnvironment();
  if (!tls.ok()) return Fail("status", tls.status(), 2);
  if (*tls == nullptr) *tls = CredentialsOfJob(std::string(address), absl::Seconds(std::min(flags.timeout, 2.0)));
  const std::unique_ptr<net::Transport> transport = net::NewGrpcTransport({.tls = *tls});
  StatusOr<Ceilings> ceilings = Ceilings();
  if (flags.rates > 0 || flags.watch > 0 || !flags.ceilings.empty()) ceilings = FindCeilings(flags);
  if (!ceilings.ok()) return Fail("status", InvalidArgument("--ceilings: ", ceilings.status().message()), 2);
  std::vector<TaskView> last;
  return Show(flags, [&] { return ShowCluster(flags, std::string(address), *ceilings, transport.get(), &last); });
}

}  // namespace

std::function<int()> AddStatus(CLI::App& app, const std::vector<std::string>& program, CLI::App** command) {
  CLI::App* status = app.add_subcommand("status",
                                        "Shows the jobs that run on this machine, or the tasks of a cluster: devices, "
                                        "sessions, running steps and waits");
  auto flags = std::make_shared<StatusFlags>();
  status->add_option("--target", flags->target,
                     "Any task of a cluster: grpc://host:port. Default: the jobs of `millrace launch` on this machine");
  status->add_option("--job", flags->job, "Shows only the job whose launcher has this pid");
  status->add_option("--timeout", flags->timeout, "Seconds that a task may take to answer")->capture_default_str();
  status
      ->add_option(
          "--hang_after", flags->hang_after,
          "Reports a hang (who waits for what, and why) if a task has waited for this many seconds and no step "
          "of its session has ended")
      ->capture_default_str();
  status->add_option("--watch", flags->watch, "Repeats after this many seconds until interrupted; 0: once")
      ->capture_default_str();
  status
      ->add_option("--rates", flags->rates,
                   "Asks twice, this many seconds apart, and shows each task's rates in between and the bottleneck. "
                   "--watch shows them from the second time on")
      ->expected(0, 1)
      ->default_str("1");
  status->add_option("--ceilings", flags->ceilings,
                     "A file that `millrace bench-net --json` wrote; rates are shown as shares of its figures. May be "
                     "repeated. Default for this host: how fast it copies memory now");
  status->add_flag("--json", flags->json, "Prints one JSON object");
  flags->tls.Add(status, "this client's");
  status->footer(
      "Exit code: 0 if all tasks (or launchers) answered, 1 if one did not, 2 for an error in the flags, 3 if the "
      "cluster hangs.\n"
      "Examples:\n"
      "  millrace status\n"
      "  millrace status --target grpc://localhost:2222\n"
      "  millrace status --target grpc://localhost:2222 --rates");
  *command = status;
  return [flags] { return ShowStatus(*flags); };
}

}  // namespace millrace
