// A batch script for Slurm, which runs `millrace launch` within the allocation.
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "millrace/tools/manifest/manifest.h"

namespace millrace::manifest {
namespace {

// As a word of a shell command.
std::string Quoted(const std::string& word) {
  const bool plain = !word.empty() && word.find_first_not_of(
                                          "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                          "0123456789@%+=:,./_-") == std::string::npos;
  return plain ? word : absl::StrCat("'", absl::StrReplaceAll(word, {{"'", "'\\''"}}), "'");
}

}  // namespace

std::string SlurmScript(const ManifestOptions& options) {
  std::string script = "#!/bin/bash\n";
  const auto set = [&](const auto&... parts) { absl::StrAppend(&script, "#SBATCH --", parts..., "\n"); };
  set("job-name=", options.name);
  set("ntasks=", options.ps + options.workers);
  if (!options.cpu.empty()) set("cpus-per-task=", options.cpu);
  // Slurm's amounts have no "i": its M and G are powers of two already.
  if (!options.memory.empty())
    set(options.cpu.empty() ? "mem=" : "mem-per-cpu=", absl::StrReplaceAll(options.memory, {{"i", ""}}));
  if (options.gpus > 0) set("gpus-per-task=", options.gpus);
  absl::StrAppend(&script, "# Before the time limit, and when the job is preempted, the launcher gets a notice.\n");
  set("signal=B:TERM@", options.grace + 10);
  set("requeue");
  set("open-mode=append");
  for (const std::string& variable : options.environment) absl::StrAppend(&script, "export ", Quoted(variable), "\n");
  std::vector<std::string> words = {"exec millrace launch"};
  if (options.ps > 0) words.push_back(absl::StrCat("--ps ", options.ps));
  words.push_back(absl::StrCat("--workers ", options.workers, " --grace ", options.grace, " --requeue"));
  if (options.insecure) words.emplace_back("--insecure");
  words.emplace_back("--");
  for (const std::string& word : options.program) words.push_back(Quoted(word));
  return absl::StrCat(script, absl::StrJoin(words, " "), "\n");
}

}  // namespace millrace::manifest
