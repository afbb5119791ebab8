// What a user applies to run a job elsewhere: manifests for Kubernetes and Kubeflow, a script for Slurm.
//
// Pure: options in, text out. One file for each kind; pods.h has what their pods share.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "millrace/base/status.h"
#include "millrace/base/tls_credentials.h"

namespace millrace::manifest {

struct ManifestOptions {
  std::string name = "train";
  std::string name_space = {};  // empty: the one that kubectl uses; certificates are then for "default"
  int ps = 0, workers = 1;
  std::string image = {};
  std::vector<std::string> program = {};
  std::vector<std::string> environment = {};  // "NAME=VALUE"
  std::string cpu = {}, memory = {};          // of each task, as Kubernetes writes them: "2", "500m", "4Gi"
  int gpus = 0;                               // of each worker
  std::string volume_claim = {}, volume_path = {};
  int port = 2222;
  int grace = 60;   // seconds from a notice to the end
  int retries = 3;  // failures of pods, other than disruptions, until the job fails
  bool insecure = false;
  int user = 65532;
  std::string cluster_domain = "cluster.local";

  std::string NameSpace() const { return name_space.empty() ? "default" : name_space; }
  // INVALID_ARGUMENT names the flag, and says what is allowed.
  Status Check() const;
};

// Lower-case letters, digits and dashes, from a letter to a letter or digit, so short that all names made of it are
// allowed as well.
inline constexpr int kMostNameCharacters = 40;
Status CheckName(absl::string_view flag, absl::string_view name);

// The kinds. `tls` is null with --insecure.
std::string KubernetesManifest(const ManifestOptions& options, const TlsCredentials* tls);
std::string JobSetManifest(const ManifestOptions& options, const TlsCredentials* tls);
std::string TfJobManifest(const ManifestOptions& options, const TlsCredentials* tls);
std::string TrainJobManifest(const ManifestOptions& options, const TlsCredentials* tls);
std::string SlurmScript(const ManifestOptions& options);

// The names under which the tasks of each kind reach each other.
std::vector<std::string> KubernetesHosts(const ManifestOptions& options);
std::vector<std::string> JobSetHosts(const ManifestOptions& options);
std::vector<std::string> TfJobHosts(const ManifestOptions& options);

// INVALID_ARGUMENT lists the kinds.
StatusOr<std::string> MakeManifest(const std::string& kind, const ManifestOptions& options);

}  // namespace millrace::manifest
