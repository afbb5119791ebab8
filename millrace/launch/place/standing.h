// What a scheduler says about the process that it started: which of how many it is, and where the others are.
//
// A source reads the variables of one scheduler, out of an environment that is handed in: pure functions. To add a
// scheduler, write a file like slurm_source.cc and add its line to PlaceSources().
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "millrace/base/status.h"

namespace millrace::launch {

using Environment = std::map<std::string, std::string>;

// This process, as far as sources look at it.
struct Surroundings {
  Environment environment = {};
  std::string host_name = {};  // with its domain, if it has one
  int parent = 0;              // the process that started this one

  static Surroundings OfThisProcess();
};

// Reads variables and remembers which ones were there, for `--explain`.
class Variables {
 public:
  explicit Variables(const Environment& environment) : environment_(environment) {}

  // Empty if it is not set.
  std::string Text(const std::string& name);
  bool Has(const std::string& name) const { return environment_.contains(name); }
  // A number from 0 to 2^31 - 1. INVALID_ARGUMENT names the variable if it is missing or something else.
  StatusOr<int> Number(const std::string& name);
  // "NAME=VALUE" of each that was read and set, in the order of reading.
  const std::vector<std::string>& used() const { return used_; }

 private:
  const Environment& environment_;
  std::vector<std::string> used_;
};

struct Standing {
  std::string scheduler = {};          // for messages: "Slurm step 7.0"
  int rank = 0, size = 1;              // size 0: only the flags say
  int local_rank = 0, local_size = 1;  // among the processes on this host; size 0: unknown
  // The hosts of all ranks; empty if the scheduler does not say.
  std::vector<std::string> hosts = {};
  // Where rank 0 may be, the likeliest first; empty if the scheduler does not say.
  std::vector<std::string> first_hosts = {};
  std::string address = {};  // under which the others reach this host
  // In pods: the host of a task follows from its job and index, and the port is the same everywhere. `job` is set if
  // each job has pods of its own, and `rank` is then the index in it.
  struct Pods {
    std::string prefix, job, domain;  // "train-", "worker", ".train.default.svc.cluster.local"
    std::string job_index;            // of a JobSet: "-0"
    std::string Host(const std::string& of_job, int index) const;
  };
  std::optional<Pods> pods = std::nullopt;
  std::vector<std::string> used = {};  // the variables
};

struct PlaceSource {
  const char* name;
  // Whether this scheduler started the process.
  bool (*present)(const Surroundings& here);
  // INVALID_ARGUMENT names the variable that is wrong. `jobs` are the names of the jobs that were asked for.
  StatusOr<Standing> (*read)(const Surroundings& here, absl::Span<const std::string> jobs);
};

// All schedulers. The first that is present is the innermost: `mpirun` runs within `sbatch`, and in pods.
absl::Span<const PlaceSource> PlaceSources();

extern const PlaceSource kOpenMpiSource, kHydraSource, kPmixSource, kSlurmSource, kPodSource;

// The rank of each host's tasks: hosts[i] is that of rank i. `counts` are the tasks on each of `nodes`.
StatusOr<std::vector<std::string>> HostsOfRanks(const std::vector<std::string>& nodes, const std::vector<int>& counts,
                                                int size);
// INVALID_ARGUMENT if a rank is outside of a size that is known.
Status CheckRanks(const Standing& standing);
// Whether this process is in a step of Slurm's (`srun`), not only in an allocation (`sbatch`, `salloc`).
bool InSlurmStep(const Environment& environment);

}  // namespace millrace::launch
