// JobSet (jobset.x-k8s.io), and Kubeflow's Trainer v2, whose runtimes are JobSets: the set succeeds with its workers,
// and its controller then ends the ps.
#include "absl/strings/str_cat.h"
#include "millrace/tools/manifest/pods.h"

namespace millrace::manifest {
namespace {

constexpr char kAncestor[] = "trainer.kubeflow.org/trainjob-ancestor-step";

Json SetSpec(const ManifestOptions& options, const std::string& worker_container) {
  const auto job = [&](const std::string& name, const std::string& container, int count) -> Json {
    const PodOptions pod = {.job = name, .container = container, .command = PlaceCommand(options)};
    return {{"name", name}, {"replicas", 1}, {"template", {{"spec", IndexedJobSpec(options, pod, count)}}}};
  };
  Json jobs = Json::array();
  if (options.ps > 0) jobs.push_back(job("ps", "task", options.ps));
  jobs.push_back(job("worker", worker_container, options.workers));
  return {{"network", {{"enableDNSHostnames", true}, {"subdomain", options.name}, {"publishNotReadyAddresses", true}}},
          {"successPolicy", {{"operator", "All"}, {"targetReplicatedJobs", {"worker"}}}},
          {"failurePolicy", {{"maxRestarts", options.retries}}},
          {"replicatedJobs", std::move(jobs)}};
}

}  // namespace

std::vector<std::string> JobSetHosts(const ManifestOptions& options) {
  std::vector<std::string> hosts;
  const std::string domain = absl::StrCat(".", options.name, ".", options.NameSpace(), ".svc.", options.cluster_domain);
  for (int i = 0; i < options.ps; ++i) hosts.push_back(absl::StrCat(options.name, "-ps-0-", i, domain));
  for (int i = 0; i < options.workers; ++i) hosts.push_back(absl::StrCat(options.name, "-worker-0-", i, domain));
  return hosts;
}

std::string JobSetManifest(const ManifestOptions& options, const TlsCredentials* tls) {
  std::vector<Json> documents;
  if (tls != nullptr) documents.push_back(TlsSecret(options, *tls));
  documents.push_back({{"apiVersion", "jobset.x-k8s.io/v1alpha2"},
                       {"kind", "JobSet"},
                       {"metadata", Metadata(options, options.name, Labels(options))},
                       {"spec", SetSpec(options, "task")}});
  return ToYaml(documents);
}

std::string TrainJobManifest(const ManifestOptions& options, const TlsCredentials* tls) {
  std::vector<Json> documents;
  if (tls != nullptr) documents.push_back(TlsSecret(options, *tls));
  // The Trainer sets the number of pods of the job with this label, whose container it calls "node".
  Json set = SetSpec(options, "node");
  Json& worker = set["replicatedJobs"].back();
  worker["template"]["metadata"] = {{"labels", {{kAncestor, "trainer"}}}};
  const std::string runtime = options.name + "-ps-workers";
  documents.push_back({{"apiVersion", "trainer.kubeflow.org/v1alpha1"},
                       {"kind", "TrainingRuntime"},
                       {"metadata", Metadata(options, runtime, Labels(options))},
                       {"spec", {{"mlPolicy", {{"numNodes", options.workers}}}, {"template", {{"spec", set}}}}}});
  documents.push_back(
      {{"apiVersion", "trainer.kubeflow.org/v1alpha1"},
       {"kind", "TrainJob"},
       {"metadata", Metadata(options, options.name, Labels(options))},
       {"spec",
        {{"runtimeRef", {{"apiGroup", "trainer.kubeflow.org"}, {"kind", "TrainingRuntime"}, {"name", runtime}}},
         {"trainer", {{"numNodes", options.workers}}}}}});
  return ToYaml(documents);
}

}  // namespace millrace::manifest
