#include "millrace/launch/place/standing.h"

#include <netdb.h>
#include <unistd.h>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

extern char** environ;

namespace millrace::launch {
namespace {

// With its domain, which pods have in /etc/hosts.
std::string FullHostName() {
  char name[256] = {};
  if (gethostname(name, sizeof(name) - 1) != 0) return "localhost";
  addrinfo hints = {};
  hints.ai_flags = AI_CANONNAME;
  addrinfo* found = nullptr;
  std::string full = name;
  if (full.find('.') == std::string::npos && getaddrinfo(name, nullptr, &hints, &found) == 0) {
    if (found->ai_canonname != nullptr && absl::StartsWith(found->ai_canonname, absl::StrCat(full, ".")))
      full = found->ai_canonname;
    freeaddrinfo(found);
  }
  return full;
}

}  // namespace

Surroundings Surroundings::OfThisProcess() {
  Surroundings here;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::pair<std::string, std::string> part = absl::StrSplit(*entry, absl::MaxSplits('=', 1));
    here.environment.insert(part);
  }
  // Only pods need the domain; elsewhere a slow name server would be waited for in vain.
  if (kPodSource.present(here)) {
    here.host_name = FullHostName();
  } else {
    char name[256] = {};
    here.host_name = gethostname(name, sizeof(name) - 1) == 0 ? name : "localhost";
  }
  here.parent = getppid();
  return here;
}

std::string Variables::Text(const std::string& name) {
  const auto found = environment_.find(name);
  if (found == environment_.end()) return "";
  used_.push_back(absl::StrCat(name, "=", found->second));
  return found->second;
}

StatusOr<int> Variables::Number(const std::string& name) {
  if (!Has(name)) return InvalidArgument(name, " is not set");
  const std::string text = Text(name);
  int number;
  if (!absl::SimpleAtoi(text, &number) || number < 0) return InvalidArgument(name, " is '", text, "' and not a number");
  return number;
}

StatusOr<std::vector<std::string>> HostsOfRanks(const std::vector<std::string>& nodes, const std::vector<int>& counts,
                                                int size) {
  if (nodes.size() != counts.size())
    return InvalidArgument("the list of nodes has ", nodes.size(), " entries, that of tasks per node ", counts.size());
  std::vector<std::string> hosts;
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (counts[i] > size - static_cast<int>(hosts.size()))
      return InvalidArgument("the nodes have more tasks than the ", size, " that were started");
    hosts.insert(hosts.end(), counts[i], nodes[i]);
  }
  if (static_cast<int>(hosts.size()) != size)
    return InvalidArgument("the nodes have ", hosts.size(), " tasks, but ", size, " were started");
  return hosts;
}

Status CheckRanks(const Standing& s) {
  if (s.size < 1 || s.rank < 0 || s.rank >= s.size)
    return InvalidArgument("this is rank ", s.rank, " of ", s.size, ": the rank must be below the number of tasks");
  if (s.local_size > 0 && (s.local_rank >= s.local_size || s.local_size > s.size))
    return InvalidArgument("this is task ", s.local_rank, " of ", s.local_size, " on its host, of ", s.size, " in all");
  return absl::OkStatus();
}

std::string Standing::Pods::Host(const std::string& of_job, int index) const {
  return job.empty() ? absl::StrCat(prefix, index, domain)
                     : absl::StrCat(prefix, of_job, job_index, "-", index, domain);
}

absl::Span<const PlaceSource> PlaceSources() {
  // Under `srun --mpi=pmix` and `--mpi=pmi2` the PMIx and Hydra sources are not present: Slurm knows more.
  static const PlaceSource kAll[] = {kOpenMpiSource, kHydraSource, kPmixSource, kSlurmSource, kPodSource};
  return kAll;
}

}  // namespace millrace::launch
