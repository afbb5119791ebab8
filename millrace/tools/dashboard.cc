// millrace dashboard: a job or a cluster as a live web page, and as metrics.
#include "millrace/dashboard/dashboard.h"

#include <sys/stat.h>

#include <algorithm>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "millrace/base/file.h"
#include "millrace/dashboard/access.h"
#include "millrace/launch/job_socket.h"
#include "millrace/net/address.h"
#include "millrace/tools/command.h"
#include "millrace/tools/job_status.h"
#include "millrace/tools/status_traffic.h"
#include "millrace/tools/tls_flags.h"

namespace millrace {
namespace {

struct DashboardFlags {
  int job = 0;
  std::string target;
  TlsFlags tls;
  double hang_after = 10;
  std::string host = "localhost";
  int port = 0;
  std::vector<std::string> host_names, ceilings;
  std::string https_cert, https_key, token_file, save;
};

// The job to show if no flag says it: the only one that runs.
StatusOr<int> OnlyJob() {
  const std::vector<int> jobs = launch::RunningJobs();
  if (jobs.size() == 1) return jobs[0];
  if (jobs.empty()) {
    return NotFound(
        "no job of `millrace launch` is running on this machine; give --target grpc://host:port for a cluster without "
        "a launcher");
  }
  std::vector<std::string> pids;
  for (const int pid : jobs) pids.push_back(absl::StrCat(pid));
  return InvalidArgument("several jobs run on this machine; give --job PID, one of: ", absl::StrJoin(pids, ", "));
}

Status ReadTarget(const DashboardFlags& flags, dashboard::WatcherOptions* watch) {
  absl::string_view address = flags.target;
  absl::ConsumePrefix(&address, "grpc://");
  if (const StatusOr<net::HostPort> parsed = net::ParseHostPort(address); !parsed.ok())
    return InvalidArgument("--target: ", parsed.status().message(), ", as in grpc://localhost:2222");
  watch->target = std::string(address);
  MR_ASSIGN_OR_RETURN(watch->tls, flags.tls.Read());
  if (watch->tls == nullptr) {
    MR_ASSIGN_OR_RETURN(watch->tls, TlsFromEnvironment());
  }
  if (watch->tls == nullptr) watch->tls = CredentialsOfJob(watch->target, absl::Seconds(2));
  return absl::OkStatus();
}

// A token that others can read is none.
StatusOr<std::string> ReadToken(const std::string& file) {
  struct stat info = {};
  if (stat(file.c_str(), &info) == 0 && (info.st_mode & 077) != 0)
    return InvalidArgument("other users can read it; run `chmod 600 ", file, "`");
  MR_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(FileSystem::Posix(), file));
  const std::string token(absl::StripAsciiWhitespace(text));
  MR_RETURN_IF_ERROR(dashboard::CheckToken(token));
  return token;
}

StatusOr<dashboard::DashboardOptions> DashboardOptionsOf(const DashboardFlags& flags) {
  dashboard::DashboardOptions options;
  if (flags.job != 0 && !flags.target.empty()) return InvalidArgument("give either --target or --job");
  if (flags.port < 0 || flags.port > 65535) return InvalidArgument("--port is ", flags.port, "; give one up to 65535");
  if (!(flags.hang_after >= 0))
    return InvalidArgument("--hang_after is ", flags.hang_after, "; give a number of seconds");
  options.watch.hang_after = absl::Seconds(flags.hang_after);
  options.watch.job = flags.job;
  if (!flags.target.empty()) {
    MR_RETURN_IF_ERROR(ReadTarget(flags, &options.watch));
  } else if (flags.job == 0) {
    MR_ASSIGN_OR_RETURN(options.watch.job, OnlyJob());
  }
  StatusOr<Ceilings> ceilings = ReadCeilings(flags.ceilings);
  if (!ceilings.ok()) return WithPrefix("--ceilings: ", ceilings.status());
  options.watch.ceilings = *ceilings;
  if (options.watch.ceilings.same_host == 0) options.watch.ceilings.same_host = MeasureCopies();
  options.host = flags.host;
  options.port = flags.port;
  options.host_names = flags.host_names;
  options.save = flags.save;
  if (const Status writable = flags.save.empty() ? absl::OkStatus() : dashboard::CheckSave(flags.save); !writable.ok())
    return WithPrefix("--save: ", writable);
  if (flags.https_cert.empty() != flags.https_key.empty())
    return InvalidArgument("give both of --https_cert and --https_key, or none");
  if (!flags.https_cert.empty()) {
    StatusOr<std::string> certificate = ReadWholeFile(FileSystem::Posix(), flags.https_cert);
    if (!certificate.ok()) return WithPrefix("--https_cert: ", certificate.status());
    StatusOr<std::string> key = ReadWholeFile(FileSystem::Posix(), flags.https_key);
    if (!key.ok()) return WithPrefix("--https_key: ", key.status());
    options.certificate = *certificate;
    options.key = *key;
  }
  if (!flags.token_file.empty()) {
    StatusOr<std::string> token = ReadToken(flags.token_file);
    if (!token.ok()) return WithPrefix(absl::StrCat("--token_file ", flags.token_file, ": "), token.status());
    options.token = *token;
  }
  options.tell = [](const std::string& url) { std::cout << "dashboard: " << url << std::endl; };
  return options;
}

int ShowDashboard(const DashboardFlags& flags) {
  StatusOr<dashboard::DashboardOptions> options = DashboardOptionsOf(flags);
  if (!options.ok()) return Fail("dashboard", options.status(), absl::IsNotFound(options.status()) ? 1 : 2);
  const Status ended = dashboard::RunDashboard(*options);
  if (!ended.ok()) return Fail("dashboard", ended, absl::IsInvalidArgument(ended) ? 2 : 1);
  return 0;
}

}  // namespace

std::function<int()> AddDashboard(CLI::App& app, const std::vector<std::string>& program, CLI::App** command) {
  CLI::App* dashboard = app.add_subcommand(
      "dashboard", "Shows a job or a cluster on a live web page, and as metrics for Prometheus, until Ctrl-C");
  auto flags = std::make_shared<DashboardFlags>();
  dashboard->add_option("--job", flags->job,
                        "The pid of a launcher on this machine; default: the only one of this user that runs");
  dashboard->add_option("--target", flags->target, "Any task of a cluster: grpc://host:port");
  dashboard->add_option("--port", flags->port, "The port of the page; default: a free one");
  dashboard
      ->add_option("--host", flags->host, "Where to listen; beyond localhost only with --https_cert and --https_key")
      ->capture_default_str();
  dashboard
      ->add_option("--host_name", flags->host_names,
                   "Another name under which browsers may ask for the page; may be repeated")
      ->allow_extra_args(false);
  dashboard->add_option("--https_cert", flags->https_cert, "The page's certificate (PEM file)");
  dashboard->add_option("--https_key", flags->https_key, "The certificate's private key (PEM file)");
  dashboard->add_option("--token_file", flags->token_file,
                        "A file with the token that gives access, readable by its owner only; default: a random one");
  dashboard->add_option("--save", flags->save, "Writes the page to this file when the job or the dashboard ends");
  dashboard
      ->add_option("--hang_after", flags->hang_after,
                   "Shows a hang if a task has waited for this many seconds and no step of its session has ended")
      ->capture_default_str();
  dashboard->add_option("--ceilings", flags->ceilings,
                        "A file that `millrace bench-net --json` wrote; rates are shown as shares of its figures. May "
                        "be repeated. Default for this host: how fast it copies memory now");
  flags->tls.Add(dashboard, "this client's");
  dashboard->footer(
      "Examples:\n"
      "  millrace dashboard\n"
      "  millrace dashboard --job 4711 --save run.html\n"
      "  millrace dashboard --target grpc://localhost:2222");
  *command = dashboard;
  return [flags] { return ShowDashboard(*flags); };
}

}  // namespace millrace
