// Kubeflow's TFJob (v1). The operator makes the Services and TF_CONFIG; `millrace place` checks it and keeps it.
#include "absl/strings/str_cat.h"
#include "millrace/tools/manifest/pods.h"

namespace millrace::manifest {

std::vector<std::string> TfJobHosts(const ManifestOptions& options) {
  std::vector<std::string> hosts;
  const std::string domain = absl::StrCat(".", options.NameSpace(), ".svc");
  for (int i = 0; i < options.ps; ++i) hosts.push_back(absl::StrCat(options.name, "-ps-", i, domain));
  for (int i = 0; i < options.workers; ++i) hosts.push_back(absl::StrCat(options.name, "-worker-", i, domain));
  return hosts;
}

std::string TfJobManifest(const ManifestOptions& options, const TlsCredentials* tls) {
  std::vector<Json> documents;
  if (tls != nullptr) documents.push_back(TlsSecret(options, *tls));
  std::vector<std::string> command = {"millrace", "place", "--"};
  command.insert(command.end(), options.program.begin(), options.program.end());
  const auto replicas = [&](const std::string& job, int count) -> Json {
    // The operator looks for the container and the port by these names, and writes the pods' own restart policy.
    const PodOptions pod = {
        .job = job, .container = "tensorflow", .command = command, .port_name = "tfjob-port", .restart = ""};
    // ExitCode: codes from 1 to 127 are mistakes, from 128 on (143 after a notice) the pod is started again.
    return {{"replicas", count}, {"restartPolicy", "ExitCode"}, {"template", PodTemplate(options, pod)}};
  };
  Json specs = Json::object();
  if (options.ps > 0) specs["PS"] = replicas("ps", options.ps);
  specs["Worker"] = replicas("worker", options.workers);
  // AllWorkers: it succeeds when all workers have; the ps are then ended with what else still runs.
  documents.push_back({{"apiVersion", "kubeflow.org/v1"},
                       {"kind", "TFJob"},
                       {"metadata", Metadata(options, options.name, Labels(options))},
                       {"spec",
                        {{"successPolicy", "AllWorkers"},
                         {"runPolicy", {{"cleanPodPolicy", "Running"}, {"backoffLimit", options.retries}}},
                         {"tfReplicaSpecs", std::move(specs)}}}});
  return ToYaml(documents);
}

}  // namespace millrace::manifest
