#include "millrace/tools/manifest/manifest.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "millrace/net/tls/certificate_authority.h"
#include "re2/re2.h"

namespace millrace::manifest {
namespace {

Status CheckAmounts(const ManifestOptions& options) {
  if (!options.cpu.empty() && !RE2::FullMatch(options.cpu, R"([0-9]+(\.[0-9]{1,3})?|[1-9][0-9]*m)"))
    return InvalidArgument("--cpu is '", options.cpu, "'; give cores, as in 2, 0.5 or 500m");
  if (!options.memory.empty() && !RE2::FullMatch(options.memory, R"([1-9][0-9]*([KMGT]i?|k)?)"))
    return InvalidArgument("--memory is '", options.memory, "'; give bytes, as in 4Gi or 500M");
  if (options.gpus < 0) return InvalidArgument("--gpus is ", options.gpus, "; give a number of GPUs");
  if (options.grace < 1 || options.grace > 86400)
    return InvalidArgument("--grace is ", options.grace, "; give 1 to 86400 seconds");
  if (options.retries < 0) return InvalidArgument("--retries is ", options.retries, "; give a number of failures");
  if (options.port < 1024 || options.port > 65535)
    return InvalidArgument("--port is ", options.port, "; give 1024 to 65535: the tasks are not root");
  if (options.user < 1) return InvalidArgument("--user is ", options.user, "; give the number of a user, not root");
  return absl::OkStatus();
}

// The certificate of all tasks of the job, which their probes use too.
StatusOr<TlsCredentials> MakeCertificate(const ManifestOptions& options, std::vector<std::string> hosts) {
  hosts.insert(hosts.end(), {"localhost", "127.0.0.1", "::1"});
  MR_ASSIGN_OR_RETURN(const std::unique_ptr<net::CertificateAuthority> authority,
                      net::CertificateAuthority::Make(absl::StrCat("millrace job ", options.name)));
  return authority->Issue(options.name, hosts, net::CertificateRole::kTask);
}

}  // namespace

Status CheckName(absl::string_view flag, absl::string_view name) {
  if (name.size() <= kMostNameCharacters && RE2::FullMatch(std::string(name), "[a-z]([-a-z0-9]*[a-z0-9])?"))
    return absl::OkStatus();
  return InvalidArgument(flag, " is '", name, "', which Kubernetes refuses: use lower-case letters, digits and '-', ",
                         "begin with a letter, end with a letter or digit, ", kMostNameCharacters,
                         " characters at most");
}

Status ManifestOptions::Check() const {
  MR_RETURN_IF_ERROR(CheckName("--name", name));
  if (!name_space.empty()) MR_RETURN_IF_ERROR(CheckName("--namespace", name_space));
  if (ps < 0) return InvalidArgument("--ps is ", ps, "; it cannot be negative");
  if (workers < 1) return InvalidArgument("--workers is ", workers, "; there must be one at least");
  if (ps + workers > 10000) return InvalidArgument("--ps and --workers: more than 10000 tasks");
  if (program.empty()) return InvalidArgument("no program: give it after --, as in -- ./my_program --my_flags");
  MR_RETURN_IF_ERROR(CheckAmounts(*this));
  for (const std::string& variable : environment) {
    if (!RE2::FullMatch(variable, "(?s)[A-Za-z_][A-Za-z0-9_]*=.*"))
      return InvalidArgument("--env '", variable, "': give NAME=VALUE, with letters, digits and '_' in the name");
  }
  if (volume_claim.empty() != volume_path.empty()) return InvalidArgument("--volume: give CLAIM:/PATH");
  if (volume_claim.empty()) return absl::OkStatus();
  if (volume_path[0] != '/' || volume_path == "/" || absl::StrContains(volume_path, ":"))
    return InvalidArgument("--volume: '", volume_path, "' is not an absolute path below /");
  if (!RE2::FullMatch(volume_claim, "[a-z0-9]([-.a-z0-9]*[a-z0-9])?") || volume_claim.size() > 253)
    return InvalidArgument("--volume: '", volume_claim, "' is not the name of a PersistentVolumeClaim");
  return absl::OkStatus();
}

StatusOr<std::string> MakeManifest(const std::string& kind, const ManifestOptions& options) {
  MR_RETURN_IF_ERROR(options.Check());
  if (kind == "slurm") return SlurmScript(options);
  struct Kind {
    const char* name;
    std::string (*write)(const ManifestOptions&, const TlsCredentials*);
    std::vector<std::string> (*hosts)(const ManifestOptions&);
  };
  for (const Kind& known :
       {Kind{"kubernetes", KubernetesManifest, KubernetesHosts}, Kind{"jobset", JobSetManifest, JobSetHosts},
        Kind{"tfjob", TfJobManifest, TfJobHosts}, Kind{"trainjob", TrainJobManifest, JobSetHosts}}) {
    if (kind != known.name) continue;
    if (options.image.empty()) return InvalidArgument("no image: give --image, as in --image registry/my_image:1");
    if (options.image.find_first_of(" \t\n") != std::string::npos)
      return InvalidArgument("--image '", options.image, "' has a space in it");
    if (options.insecure) return known.write(options, nullptr);
    MR_ASSIGN_OR_RETURN(const TlsCredentials tls, MakeCertificate(options, known.hosts(options)));
    return known.write(options, &tls);
  }
  return InvalidArgument("--for is '", kind, "'; use kubernetes, jobset, tfjob, trainjob or slurm");
}

}  // namespace millrace::manifest
