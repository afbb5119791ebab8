// millrace health: whether a task serves, for the probes of a scheduler.
#include <iostream>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "millrace/cluster/task_config.h"
#include "millrace/cluster/watch/cluster_status.h"
#include "millrace/net/address.h"
#include "millrace/net/grpc/grpc_transport.h"
#include "millrace/tools/command.h"
#include "millrace/tools/tls_flags.h"

namespace millrace {
namespace {

struct HealthFlags {
  std::string target;
  int port = 0;
  double timeout = 5;
  bool quiet = false;
  TlsFlags tls;
};

// The address of the task: that of the flags, or of this process's own task.
StatusOr<std::string> AddressOf(const HealthFlags& flags) {
  if (!flags.target.empty() && flags.port != 0) return InvalidArgument("give either --target or --port");
  if (!flags.target.empty()) {
    absl::string_view address = flags.target;
    absl::ConsumePrefix(&address, "grpc://");
    if (const StatusOr<net::HostPort> parsed = net::ParseHostPort(address); !parsed.ok())
      return InvalidArgument("--target: ", parsed.status().message(), ", as in grpc://localhost:2222");
    return std::string(address);
  }
  if (flags.port < 0 || flags.port > 65535) return InvalidArgument("--port is ", flags.port, "; give 1 to 65535");
  if (flags.port != 0) return absl::StrCat("localhost:", flags.port);
  MR_ASSIGN_OR_RETURN(const std::optional<TaskConfig> config, TaskConfig::FromEnvironment());
  if (!config) return InvalidArgument("which task? Give --port or --target, or set TF_CONFIG");
  return config->cluster.Address(config->task);
}

int ShowHealth(const HealthFlags& flags) {
  if (!(flags.timeout > 0))
    return Fail("health", InvalidArgument("--timeout is ", flags.timeout, "; give a number of seconds above 0"), 2);
  const StatusOr<std::string> address = AddressOf(flags);
  if (!address.ok()) return Fail("health", address.status(), 2);
  StatusOr<std::shared_ptr<const TlsCredentials>> tls = flags.tls.Read();
  if (tls.ok() && *tls == nullptr) tls = TlsFromEnvironment();
  if (!tls.ok()) return Fail("health", tls.status(), 2);
  const std::unique_ptr<net::Transport> transport = net::NewGrpcTransport({.tls = *tls});
  const std::vector<TaskView> answer = AskTasks(transport.get(), {{.address = *address}}, absl::Seconds(flags.timeout));
  if (!answer[0].answer.ok())
    return Fail("health", WithPrefix(absl::StrCat(*address, " does not serve: "), answer[0].answer), 1);
  if (!flags.quiet) std::cout << "millrace: " << answer[0].task << " serves at " << *address << "\n";
  return 0;
}

}  // namespace

std::function<int()> AddHealth(CLI::App& app, const std::vector<std::string>& program, CLI::App** command) {
  CLI::App* health =
      app.add_subcommand("health", "Whether a task serves: exit code 0 if it does, 1 if not; for a scheduler's probes");
  auto flags = std::make_shared<HealthFlags>();
  health->add_option("--target", flags->target, "The task: grpc://host:port. Default: the task that TF_CONFIG names");
  health->add_option("--port", flags->port, "The task at this port of this machine, or of this pod");
  health->add_option("--timeout", flags->timeout, "Seconds that the task may take to answer")->capture_default_str();
  health->add_flag("--quiet", flags->quiet, "Prints nothing if the task serves");
  flags->tls.Add(health, "this client's");
  health->footer(
      "Certificates come from the flags, or from the folder that MILLRACE_TLS_DIR names, as for the tasks themselves.\n"
      "Exit code: 0 if the task answers, 1 if it does not, 2 for an error in the flags.\n"
      "Example, in a pod:\n"
      "  millrace health --port 2222");
  *command = health;
  return [flags] { return ShowHealth(*flags); };
}

}  // namespace millrace
