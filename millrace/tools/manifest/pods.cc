#include "millrace/tools/manifest/pods.h"

#include "absl/strings/str_cat.h"
#include "millrace/base/notice.h"
#include "millrace/cluster/server_environment.h"

namespace millrace::manifest {
namespace {

constexpr char kTlsPath[] = "/etc/millrace/tls";
// The exit codes that a repetition does not change: a mistake in the flags, no such program, one that cannot be run.
constexpr int kMistakes[] = {2, 126, 127};

Json EnvironmentOf(const ManifestOptions& options) {
  Json list = Json::array();
  const auto add = [&](const std::string& name, const std::string& value) {
    list.push_back({{"name", name}, {"value", value}});
  };
  // The root is read-only, so what looks for a home gets the scratch space.
  add("HOME", "/tmp");
  add(kGraceVariable, absl::StrCat(options.grace));
  if (options.insecure) {
    add(kInsecureVariable, "1");
    add(kFileRootVariable, options.volume_path);
  } else {
    add(kTlsFolderVariable, kTlsPath);
    add(kFileRootVariable, "/");
  }
  for (const std::string& variable : options.environment) {
    const size_t at = variable.find('=');
    add(variable.substr(0, at), variable.substr(at + 1));
  }
  return list;
}

Json Resources(const ManifestOptions& options, bool gpus) {
  Json amounts = Json::object();
  if (!options.cpu.empty()) amounts["cpu"] = options.cpu;
  if (!options.memory.empty()) amounts["memory"] = options.memory;
  if (gpus && options.gpus > 0) amounts["nvidia.com/gpu"] = options.gpus;
  if (amounts.empty()) return amounts;
  // Memory above its limit is death: the request says how much there will be.
  return {{"requests", amounts}, {"limits", amounts}};
}

Json Probe(const ManifestOptions& options, int period, int failures) {
  return {{"exec", {{"command", {"millrace", "health", "--port", absl::StrCat(options.port)}}}},
          {"periodSeconds", period},
          {"timeoutSeconds", 10},
          {"failureThreshold", failures}};
}

Json Container(const ManifestOptions& options, const PodOptions& pod) {
  Json container = {{"name", pod.container},
                    {"image", options.image},
                    {"command", pod.command},
                    {"ports", {{{"name", pod.port_name}, {"containerPort", options.port}, {"protocol", "TCP"}}}},
                    {"env", EnvironmentOf(options)}};
  if (Json resources = Resources(options, pod.job != "ps"); !resources.empty())
    container["resources"] = std::move(resources);
  // A program may load its data before it serves, for as long as it likes; only a ps that has served must go on.
  if (pod.job == "ps") {
    container["startupProbe"] = Probe(options, /*period=*/5, /*failures=*/120);
    container["livenessProbe"] = Probe(options, /*period=*/20, /*failures=*/3);
  }
  container["readinessProbe"] = Probe(options, /*period=*/10, /*failures=*/1);
  container["securityContext"] = {
      {"allowPrivilegeEscalation", false}, {"readOnlyRootFilesystem", true}, {"capabilities", {{"drop", {"ALL"}}}}};
  Json mounts = {{{"name", "scratch"}, {"mountPath", "/tmp"}}};
  if (!options.insecure) mounts.push_back({{"name", "tls"}, {"mountPath", kTlsPath}, {"readOnly", true}});
  if (!options.volume_claim.empty()) mounts.push_back({{"name", "data"}, {"mountPath", options.volume_path}});
  container["volumeMounts"] = std::move(mounts);
  return container;
}

}  // namespace

std::vector<std::string> PlaceCommand(const ManifestOptions& options) {
  std::vector<std::string> command = {"millrace", "place"};
  if (options.ps > 0) command.insert(command.end(), {"--ps", absl::StrCat(options.ps)});
  command.insert(command.end(),
                 {"--workers", absl::StrCat(options.workers), "--port", absl::StrCat(options.port), "--"});
  command.insert(command.end(), options.program.begin(), options.program.end());
  return command;
}

Json Labels(const ManifestOptions& options, const std::string& task) {
  Json labels = {{"millrace.dev/job", options.name}};
  if (!task.empty()) labels["millrace.dev/task"] = task;
  return labels;
}

Json Metadata(const ManifestOptions& options, const std::string& name, const Json& labels) {
  Json metadata = {{"name", name}};
  if (!options.name_space.empty()) metadata["namespace"] = options.name_space;
  metadata["labels"] = labels;
  return metadata;
}

Json PodTemplate(const ManifestOptions& options, const PodOptions& pod) {
  Json spec = Json::object();
  if (pod.subdomain) spec["subdomain"] = options.name;
  if (!pod.restart.empty()) spec["restartPolicy"] = pod.restart;
  spec["terminationGracePeriodSeconds"] = options.grace;
  spec["automountServiceAccountToken"] = false;
  spec["enableServiceLinks"] = false;
  spec["securityContext"] = {{"runAsNonRoot", true},
                             {"runAsUser", options.user},
                             {"runAsGroup", options.user},
                             {"fsGroup", options.user},
                             {"seccompProfile", {{"type", "RuntimeDefault"}}}};
  spec["containers"] = Json::array({Container(options, pod)});
  Json volumes = {{{"name", "scratch"}, {"emptyDir", Json::object()}}};
  if (!options.insecure)
    volumes.push_back({{"name", "tls"}, {"secret", {{"secretName", options.name + "-tls"}, {"defaultMode", 0440}}}});
  if (!options.volume_claim.empty())
    volumes.push_back({{"name", "data"}, {"persistentVolumeClaim", {{"claimName", options.volume_claim}}}});
  spec["volumes"] = std::move(volumes);
  return {{"metadata", {{"labels", Labels(options, pod.job)}}}, {"spec", std::move(spec)}};
}

Json IndexedJobSpec(const ManifestOptions& options, const PodOptions& pod, int count) {
  const auto on_codes = [&](const char* action, const Json& codes) -> Json {
    return {{"action", action},
            {"onExitCodes", {{"containerName", pod.container}, {"operator", "In"}, {"values", codes}}}};
  };
  return {{"completionMode", "Indexed"},
          {"completions", count},
          {"parallelism", count},
          {"backoffLimit", options.retries},
          {"podFailurePolicy",
           {{"rules",
             {{{"action", "Ignore"}, {"onPodConditions", {{{"type", "DisruptionTarget"}, {"status", "True"}}}}},
              on_codes("Ignore", {kNoticeExitCode}),
              on_codes("FailJob", kMistakes)}}}},
          {"template", PodTemplate(options, pod)}};
}

Json TlsSecret(const ManifestOptions& options, const TlsCredentials& tls) {
  return {{"apiVersion", "v1"},
          {"kind", "Secret"},
          {"metadata", Metadata(options, options.name + "-tls", Labels(options))},
          {"type", "Opaque"},
          {"stringData", {{"cert.pem", tls.certificate}, {"key.pem", tls.key}, {"ca.pem", tls.authority}}}};
}

Json HeadlessService(const ManifestOptions& options) {
  // Tasks look for each other before they serve, and so before their pods are ready.
  return {{"apiVersion", "v1"},
          {"kind", "Service"},
          {"metadata", Metadata(options, options.name, Labels(options))},
          {"spec",
           {{"clusterIP", "None"},
            {"publishNotReadyAddresses", true},
            {"selector", Labels(options)},
            {"ports", {{{"name", "millrace"}, {"port", options.port}}}}}}};
}

}  // namespace millrace::manifest
