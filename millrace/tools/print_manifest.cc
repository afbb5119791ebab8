// millrace manifest: prints what a user applies to run a job on Kubernetes, on Kubeflow, or under Slurm.
#include <iostream>
#include <memory>
#include <string>

#include "millrace/tools/command.h"
#include "millrace/tools/manifest/manifest.h"

namespace millrace {
namespace {

struct ManifestFlags {
  std::string kind;
  std::string volume;
  manifest::ManifestOptions options;
};

int PrintManifest(const ManifestFlags& flags, const std::vector<std::string>& program) {
  manifest::ManifestOptions options = flags.options;
  options.program = program;
  if (!flags.volume.empty()) {
    const size_t colon = flags.volume.find(':');
    if (colon == std::string::npos)
      return Fail("manifest", InvalidArgument("--volume is '", flags.volume, "'; give CLAIM:/PATH, as in data:/data"),
                  2);
    options.volume_claim = flags.volume.substr(0, colon);
    options.volume_path = flags.volume.substr(colon + 1);
  }
  const StatusOr<std::string> text = manifest::MakeManifest(flags.kind, options);
  if (!text.ok()) return Fail("manifest", text.status(), 2);
  std::cout << *text << std::flush;
  return std::cout ? 0 : 1;
}

}  // namespace

std::function<int()> AddManifest(CLI::App& app, const std::vector<std::string>& program, CLI::App** command) {
  CLI::App* manifest = app.add_subcommand(
      "manifest",
      "Prints a job for a scheduler: millrace manifest --for kubernetes --ps 2 --workers 4 --image IMG -- "
      "./my_program | kubectl apply -f -");
  auto flags = std::make_shared<ManifestFlags>();
  manifest::ManifestOptions& options = flags->options;
  manifest
      ->add_option("--for", flags->kind,
                   "kubernetes (a StatefulSet and an Indexed Job), jobset, tfjob (Kubeflow v1), trainjob (Kubeflow's "
                   "Trainer v2), or slurm (a batch script)")
      ->required();
  manifest->add_option("--name", options.name, "The name of the job, from which all others follow")
      ->capture_default_str();
  manifest->add_option("--namespace", options.name_space,
                       "The namespace; certificates are made for its host names. Default: default");
  manifest->add_option("--ps", options.ps, "Number of ps tasks")->capture_default_str();
  manifest->add_option("--workers", options.workers, "Number of worker tasks")->capture_default_str();
  manifest->add_option("--image", options.image, "The image, with the program and millrace in it (deploy/image)");
  manifest->add_option("--cpu", options.cpu, "Cores of each task, as in 2 or 500m");
  manifest->add_option("--memory", options.memory, "Memory of each task, as in 4Gi");
  manifest->add_option("--gpus", options.gpus, "GPUs of each worker")->capture_default_str();
  manifest->add_option("--volume", flags->volume,
                       "A PersistentVolumeClaim that all tasks mount, for data and checkpoints: CLAIM:/PATH");
  manifest->add_option("--env", options.environment, "NAME=VALUE for the tasks' environment; may be repeated")
      ->allow_extra_args(false);
  manifest->add_option("--port", options.port, "The port of every task, in pods")->capture_default_str();
  manifest->add_option("--grace", options.grace, "Seconds that a task has after a notice (SIGTERM) to save and to end")
      ->capture_default_str();
  manifest->add_option("--retries", options.retries, "Failures, other than disruptions, until the job has failed")
      ->capture_default_str();
  manifest->add_option("--user", options.user, "The number of the user in pods")->capture_default_str();
  manifest->add_option("--cluster_domain", options.cluster_domain, "The DNS domain of the Kubernetes cluster")
      ->capture_default_str();
  manifest->add_flag("--insecure", options.insecure,
                     "Without certificates: every pod that can reach the tasks can then use their servers");
  manifest->footer(
      "The manifest has a Secret with a new certificate and its key, for the tasks of this job alone: do not commit "
      "it.\n"
      "Examples:\n"
      "  millrace manifest --for kubernetes --ps 2 --workers 4 --image IMG -- ./my_program | kubectl apply -f -\n"
      "  millrace manifest --for slurm --ps 1 --workers 8 --cpu 4 -- ./my_program > train.sh && sbatch train.sh\n"
      "Exit code: 0, or 2 for an error in the flags.");
  *command = manifest;
  return [flags, &program] { return PrintManifest(*flags, program); };
}

}  // namespace millrace
