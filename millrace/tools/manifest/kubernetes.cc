// Kubernetes alone: a headless Service, a StatefulSet of ps and an Indexed Job of workers.
//
// The pods of a StatefulSet never end by themselves. So each of ours has a second container, `millrace end-with-job`,
// which asks the cluster about the Job of the workers and removes the StatefulSet when that has ended; a Role allows it
// this and nothing else.
#include "absl/strings/str_cat.h"
#include "millrace/tools/manifest/pods.h"

namespace millrace::manifest {
namespace {

std::string JobName(const ManifestOptions& options) { return options.name + "-worker"; }
std::string PsName(const ManifestOptions& options) { return options.name + "-ps"; }

std::vector<Json> Permission(const ManifestOptions& options) {
  const std::string name = options.name + "-end";
  const auto rule = [](const char* group, const char* resource, const std::string& of, const char* verb) -> Json {
    return {{"apiGroups", {group}}, {"resources", {resource}}, {"resourceNames", {of}}, {"verbs", {verb}}};
  };
  return {{{"apiVersion", "v1"},
           {"kind", "ServiceAccount"},
           {"metadata", Metadata(options, name, Labels(options))},
           {"automountServiceAccountToken", false}},
          {{"apiVersion", "rbac.authorization.k8s.io/v1"},
           {"kind", "Role"},
           {"metadata", Metadata(options, name, Labels(options))},
           {"rules",
            {rule("batch", "jobs", JobName(options), "get"), rule("apps", "statefulsets", PsName(options), "delete")}}},
          {{"apiVersion", "rbac.authorization.k8s.io/v1"},
           {"kind", "RoleBinding"},
           {"metadata", Metadata(options, name, Labels(options))},
           {"roleRef", {{"apiGroup", "rbac.authorization.k8s.io"}, {"kind", "Role"}, {"name", name}}},
           {"subjects", {{{"kind", "ServiceAccount"}, {"name", name}, {"namespace", options.NameSpace()}}}}}};
}

// The container that ends the ps; its token is mounted into no other.
Json EndContainer(const ManifestOptions& options) {
  return {
      {"name", "end"},
      {"image", options.image},
      {"command", {"millrace", "end-with-job", "--job", JobName(options), "--statefulset", PsName(options)}},
      {"resources", {{"requests", {{"cpu", "5m"}, {"memory", "16Mi"}}}, {"limits", {{"memory", "64Mi"}}}}},
      {"securityContext",
       {{"allowPrivilegeEscalation", false}, {"readOnlyRootFilesystem", true}, {"capabilities", {{"drop", {"ALL"}}}}}},
      {"volumeMounts",
       {{{"name", "token"}, {"mountPath", "/var/run/secrets/kubernetes.io/serviceaccount"}, {"readOnly", true}}}}};
}

Json TokenVolume() {
  return {{"name", "token"},
          {"projected",
           {{"sources",
             {{{"serviceAccountToken", {{"path", "token"}}}},
              {{"configMap", {{"name", "kube-root-ca.crt"}, {"items", {{{"key", "ca.crt"}, {"path", "ca.crt"}}}}}}},
              {{"downwardAPI",
                {{"items", {{{"path", "namespace"}, {"fieldRef", {{"fieldPath", "metadata.namespace"}}}}}}}}}}}}}};
}

Json PsSet(const ManifestOptions& options) {
  // A StatefulSet names its pods' subdomain itself, and restarts always.
  Json pods = PodTemplate(options, {.job = "ps", .command = PlaceCommand(options), .restart = ""});
  pods["spec"]["serviceAccountName"] = options.name + "-end";
  pods["spec"]["containers"].push_back(EndContainer(options));
  pods["spec"]["volumes"].push_back(TokenVolume());
  return {{"apiVersion", "apps/v1"},
          {"kind", "StatefulSet"},
          {"metadata", Metadata(options, PsName(options), Labels(options, "ps"))},
          {"spec",
           {{"serviceName", options.name},
            {"replicas", options.ps},
            {"podManagementPolicy", "Parallel"},
            {"selector", {{"matchLabels", Labels(options, "ps")}}},
            {"template", std::move(pods)}}}};
}

}  // namespace

std::vector<std::string> KubernetesHosts(const ManifestOptions& options) {
  std::vector<std::string> hosts;
  const std::string domain = absl::StrCat(".", options.name, ".", options.NameSpace(), ".svc.", options.cluster_domain);
  for (int i = 0; i < options.ps; ++i) hosts.push_back(absl::StrCat(options.name, "-ps-", i, domain));
  for (int i = 0; i < options.workers; ++i) hosts.push_back(absl::StrCat(options.name, "-worker-", i, domain));
  return hosts;
}

std::string KubernetesManifest(const ManifestOptions& options, const TlsCredentials* tls) {
  std::vector<Json> documents;
  if (tls != nullptr) documents.push_back(TlsSecret(options, *tls));
  documents.push_back(HeadlessService(options));
  if (options.ps > 0) {
    for (Json& document : Permission(options)) documents.push_back(std::move(document));
    documents.push_back(PsSet(options));
  }
  const PodOptions worker = {.job = "worker", .command = PlaceCommand(options), .subdomain = true};
  documents.push_back({{"apiVersion", "batch/v1"},
                       {"kind", "Job"},
                       {"metadata", Metadata(options, JobName(options), Labels(options, "worker"))},
                       {"spec", IndexedJobSpec(options, worker, options.workers)}});
  return ToYaml(documents);
}

}  // namespace millrace::manifest
