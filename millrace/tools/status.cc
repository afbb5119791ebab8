// millrace status: what the tasks of a cluster are doing, and what they wait for.
#include <algorithm>
#include <iostream>
#include <memory>
#include <string>

#include "absl/strings/strip.h"
#include "millrace/base/mutex.h"
#include "millrace/cluster/cluster_spec.h"
#include "millrace/cluster/hang_report.h"
#include "millrace/net/grpc/grpc_transport.h"
#include "millrace/tools/command.h"
#include "millrace/tools/status_report.h"
#include "millrace/tools/tls_flags.h"

namespace millrace {
namespace {

struct StatusFlags {
  std::string target;
  TlsFlags tls;
  double timeout = 5;
  double hang_after = 10;
  double watch = 0;
  bool json = false;
};

int Fail(const Status& status) {
  std::cerr << "millrace status: " << status.message() << "\n";
  return 2;
}

int ShowStatus(const StatusFlags& flags) {
  absl::string_view address = flags.target;
  absl::ConsumePrefix(&address, "grpc://");
  if (StatusOr<HostPort> parsed = HostPort::Parse(address); !parsed.ok()) {
    return Fail(InvalidArgument("--target: ", parsed.status().message(), ", as in grpc://localhost:2222"));
  }
  if (!(flags.timeout > 0)) return Fail(InvalidArgument("--timeout is ", flags.timeout, "; give a number of seconds above 0"));
  if (!(flags.hang_after >= 0)) return Fail(InvalidArgument("--hang_after is ", flags.hang_after, "; give a number of seconds"));
  if (!(flags.watch >= 0)) return Fail(InvalidArgument("--watch is ", flags.watch, "; give a number of seconds"));
  StatusOr<std::shared_ptr<const net::TlsCredentials>> tls = flags.tls.Read();
  if (!tls.ok()) return Fail(tls.status());
  const std::unique_ptr<net::Transport> transport = net::NewGrpcTransport({.tls = *tls});
  const std::string target = absl::StrCat("grpc://", address);
  Notification never;
  while (true) {
    const std::vector<TaskView> tasks = AskCluster(transport.get(), std::string(address), absl::Seconds(flags.timeout));
    const HangReport hang = ExplainHang(tasks, absl::Seconds(flags.hang_after));
    std::cout << (flags.json ? StatusJson(target, tasks, hang) : StatusText(target, tasks, hang)) << std::flush;
    const bool all_answer = std::all_of(tasks.begin(), tasks.end(), [](const TaskView& task) { return task.answer.ok(); });
    if (flags.watch == 0) return !all_answer ? 1 : IsHang(hang) ? 3 : 0;
    if (!std::cout) return 0;  // nobody reads any more
    never.WaitFor(absl::Seconds(flags.watch));
    if (!flags.json) std::cout << "\n";
  }
}

}  // namespace

std::function<int()> AddStatus(CLI::App& app, CLI::App** command) {
  CLI::App* status = app.add_subcommand("status", "Shows the tasks of a running cluster: devices, sessions, running steps, and everything that is waited for");
  auto flags = std::make_shared<StatusFlags>();
  status->add_option("--target", flags->target, "Any task of the cluster: grpc://host:port")->required();
  status->add_option("--timeout", flags->timeout, "Seconds that a task may take to answer")->capture_default_str();
  status->add_option("--hang_after", flags->hang_after, "Seconds that a task may wait, while no step of its session ends, before it is said who waits for what and why")
      ->capture_default_str();
  status->add_option("--watch", flags->watch, "Asks again after so many seconds, until it is interrupted; 0: once")->capture_default_str();
  status->add_flag("--json", flags->json, "One JSON object, for programs");
  flags->tls.Add(status, "this client's");
  status->footer("Exit code: 0 when all tasks answered, 1 when one did not, 2 for a mistake in the flags, 3 when the cluster hangs.\n"
                 "Example:\n"
                 "  millrace status --target grpc://localhost:2222");
  *command = status;
  return [flags] { return ShowStatus(*flags); };
}

}  // namespace millrace
