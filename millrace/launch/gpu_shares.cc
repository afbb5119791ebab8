#include "millrace/launch/gpu_shares.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace millrace::launch {
namespace {

// The part of the `index`th of `count` tasks.
std::vector<std::string> PartOf(const std::vector<std::string>& gpus, size_t index, size_t count) {
  if (gpus.size() < count) return {gpus[index % gpus.size()]};
  const size_t each = gpus.size() / count, longer = gpus.size() % count;
  const size_t begin = index * each + std::min(index, longer);
  const auto from = gpus.begin() + static_cast<ptrdiff_t>(begin);
  return {from, from + static_cast<ptrdiff_t>(each + (index < longer ? 1 : 0))};
}

}  // namespace

std::vector<std::optional<std::string>> ShareGpus(const std::vector<GpuClaim>& tasks) {
  std::map<std::pair<std::string, std::string>, std::vector<size_t>> alike;
  for (size_t i = 0; i < tasks.size(); ++i) {
    if (tasks[i].visible.has_value()) alike[{tasks[i].host, *tasks[i].visible}].push_back(i);
  }
  std::vector<std::optional<std::string>> shares(tasks.size());
  for (const auto& [place, members] : alike) {
    const std::vector<std::string> gpus = absl::StrSplit(place.second, ',', absl::SkipEmpty());
    if (members.size() < 2 || gpus.empty()) continue;
    std::vector<size_t> users;
    std::copy_if(members.begin(), members.end(), std::back_inserter(users), [&](size_t i) { return tasks[i].trains; });
    if (users.empty()) users = members;
    for (const size_t member : members) shares[member] = "";
    for (size_t i = 0; i < users.size(); ++i) shares[users[i]] = absl::StrJoin(PartOf(gpus, i, users.size()), ",");
  }
  return shares;
}

}  // namespace millrace::launch
