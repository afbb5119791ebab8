// The pods of a task: the same in every kind of manifest.
#pragma once

#include <string>
#include <vector>

#include "millrace/tools/manifest/manifest.h"
#include "millrace/tools/manifest/yaml.h"

namespace millrace::manifest {

struct PodOptions {
  std::string job;                        // "ps", "worker"
  std::string container = "task";         // its name
  std::vector<std::string> command = {};  // what the container runs
  std::string port_name = "millrace";
  bool subdomain = false;         // its host names are below the Service's
  std::string restart = "Never";  // empty: not written
};

// `millrace place --ps 2 --workers 4 --port 2222 -- ./my_program`
std::vector<std::string> PlaceCommand(const ManifestOptions& options);

// metadata and spec: not root, a read-only root, a writable /tmp, certificates, probes, resources.
Json PodTemplate(const ManifestOptions& options, const PodOptions& pod);

// {"millrace.dev/job": NAME}, and with `task` {"millrace.dev/task": "ps"}.
Json Labels(const ManifestOptions& options, const std::string& task = "");
Json Metadata(const ManifestOptions& options, const std::string& name, const Json& labels);

// A Job whose pods have an index: disruptions and notices are retried without being counted, mistakes are not retried,
// and all else `retries` times.
Json IndexedJobSpec(const ManifestOptions& options, const PodOptions& pod, int count);

// The certificate of all tasks, and the Service with their names.
Json TlsSecret(const ManifestOptions& options, const TlsCredentials& tls);
Json HeadlessService(const ManifestOptions& options);

}  // namespace millrace::manifest
