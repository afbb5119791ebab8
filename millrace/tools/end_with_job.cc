// millrace end-with-job: removes the StatefulSet of the ps when the Job of the workers has ended. Runs beside a ps, in
// the pods of `millrace manifest --for kubernetes`.
#include <iostream>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "millrace/base/notice.h"
#include "millrace/launch/kubernetes_api.h"
#include "millrace/tools/command.h"
#include "millrace/tools/manifest/manifest.h"

namespace millrace {
namespace {

constexpr absl::Duration kApiTimeout = absl::Seconds(10);

struct EndFlags {
  std::string job, set;
  double every = 5;
};

// How the Job has ended; empty while it runs. A Job that is not there any more was removed, with its ps.
StatusOr<std::string> AskForJob(const KubernetesApi& api, const std::string& job) {
  MR_ASSIGN_OR_RETURN(
      const HttpAnswer answer,
      api.Ask("GET", absl::StrCat("/apis/batch/v1/namespaces/", api.name_space, "/jobs/", job), kApiTimeout));
  if (answer.code == 404) return std::string("gone");
  if (answer.code != 200) return Unavailable("the API server answers ", answer.code, " for Job ", job);
  return EndOfJob(answer.body);
}

Status Remove(const KubernetesApi& api, const std::string& set) {
  MR_ASSIGN_OR_RETURN(const HttpAnswer answer,
                      api.Ask("DELETE",
                              absl::StrCat("/apis/apps/v1/namespaces/", api.name_space, "/statefulsets/", set,
                                           "?propagationPolicy=Background"),
                              kApiTimeout));
  // Another ps may have been first.
  if (answer.code / 100 == 2 || answer.code == 404) return absl::OkStatus();
  return Unavailable("the API server answers ", answer.code, " for StatefulSet ", set);
}

int EndWithJob(const EndFlags& flags) {
  for (const auto& [flag, name] : {std::pair("--job", &flags.job), std::pair("--statefulset", &flags.set)}) {
    // Longer than --name of `millrace manifest` by what it adds.
    if (const Status named = manifest::CheckName(flag, absl::string_view(*name).substr(0, name->rfind('-')));
        !named.ok())
      return Fail("end-with-job", named, 2);
  }
  if (!(flags.every > 0))
    return Fail("end-with-job", InvalidArgument("--every is ", flags.every, "; give a number of seconds above 0"), 2);
  const StatusOr<KubernetesApi> api = KubernetesApi::OfThisPod();
  if (!api.ok()) return Fail("end-with-job", api.status(), 2);
  Notification stop;
  const NoticeSubscription notices = OnNotice([&](const Notice&) { stop.Notify(); });
  std::string said, end;
  bool seen = false;
  while (!stop.WaitFor(absl::Seconds(flags.every))) {
    Status status;
    if (end.empty()) {
      const StatusOr<std::string> asked = AskForJob(*api, flags.job);
      status = asked.status();
      // kubectl creates the Job after the StatefulSet.
      if (asked.ok() && *asked == "gone" && !seen) continue;
      seen |= asked.ok();
      if (asked.ok()) end = *asked;
      if (!end.empty()) std::cout << "millrace: Job " << flags.job << ": " << end << "; the ps end" << std::endl;
    }
    if (!end.empty()) status = Remove(*api, flags.set);
    if (!status.ok() && said != status.message())
      std::cerr << "millrace end-with-job: " << (said = std::string(status.message())) << std::endl;
    if (status.ok() && !end.empty()) stop.Wait();  // this pod is one of those that end now
  }
  return 0;
}

}  // namespace

std::function<int()> AddEndWithJob(CLI::App& app, const std::vector<std::string>& program, CLI::App** command) {
  CLI::App* end = app.add_subcommand(
      "end-with-job", "In a pod of a ps: removes their StatefulSet when the Job of the workers has ended");
  auto flags = std::make_shared<EndFlags>();
  end->add_option("--job", flags->job, "The Job of the workers")->required();
  end->add_option("--statefulset", flags->set, "The StatefulSet of the ps")->required();
  end->add_option("--every", flags->every, "Seconds between two questions to the API server")->capture_default_str();
  end->footer(
      "`millrace manifest --for kubernetes` puts it beside each ps, with a service account that may get this Job and\n"
      "delete this StatefulSet, and nothing else. Exit code: 0 after SIGTERM, 2 for an error in the flags or outside\n"
      "of a pod.");
  *command = end;
  return [flags] { return EndWithJob(*flags); };
}

}  // namespace millrace
