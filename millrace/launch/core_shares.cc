#include "millrace/launch/core_shares.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <tuple>
#include <utility>

namespace millrace::launch {
namespace {

// The first number in a file, which may contain a list.
int NumberIn(const std::string& file, int otherwise) {
  std::ifstream in(file);
  int number;
  return in >> number ? number : otherwise;
}

}  // namespace

std::vector<int> NeighboursTogether(std::vector<int> cores, const std::string& system) {
  std::vector<std::tuple<int, int, int>> placed;  // socket, the first thread of its core, itself
  placed.reserve(cores.size());
  for (const int core : cores) {
    const std::string folder = absl::StrCat(system, "/cpu", core, "/topology/");
    placed.emplace_back(NumberIn(folder + "physical_package_id", 0), NumberIn(folder + "thread_siblings_list", core),
                        core);
  }
  std::sort(placed.begin(), placed.end());
  for (size_t i = 0; i < cores.size(); ++i) cores[i] = std::get<2>(placed[i]);
  return cores;
}

std::vector<std::vector<int>> ShareCores(const std::vector<int>& cores, int count) {
  std::vector<std::vector<int>> shares;
  const size_t each = cores.size() / count, longer = cores.size() % count;
  auto next = cores.begin();
  for (int i = 0; i < count; ++i) {
    const auto end = next + static_cast<ptrdiff_t>(each + (static_cast<size_t>(i) < longer ? 1 : 0));
    shares.emplace_back(next, end);
    next = end;
  }
  return shares;
}

StatusOr<std::vector<std::vector<int>>> ShareOutCores(const std::vector<CoreClaim>& tasks) {
  // Containers on one machine may have different cores.
  std::map<std::pair<std::string, std::vector<int>>, std::vector<size_t>> bound;
  for (size_t i = 0; i < tasks.size(); ++i) {
    if (tasks[i].bound)
      bound[{tasks[i].machine.empty() ? tasks[i].host : tasks[i].machine, tasks[i].cores}].push_back(i);
  }
  std::vector<std::vector<int>> cores(tasks.size());
  for (const auto& [place, members] : bound) {
    const std::string& host = tasks[members[0]].host;
    const std::vector<int>& all = place.second;
    if (all.empty())
      return InvalidArgument("millrace on ", host, " does not report its cores: it may be an older version");
    if (all.size() < members.size()) {
      return InvalidArgument(host, " has ", all.size(), all.size() == 1 ? " core" : " cores", " to use, and ",
                             members.size(),
                             " workers to bind, chiefs included: start fewer there, or leave out --bind_workers");
    }
    const std::vector<std::vector<int>> shares = ShareCores(all, static_cast<int>(members.size()));
    for (size_t i = 0; i < members.size(); ++i) cores[members[i]] = shares[i];
  }
  return cores;
}

std::string ThisMachine() {
  std::string id;
  std::ifstream in("/proc/sys/kernel/random/boot_id");
  in >> id;
  return id;
}

}  // namespace millrace::launch
