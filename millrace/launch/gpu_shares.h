// Divides the GPUs of a host among its tasks where a scheduler shows all of them to each.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace millrace::launch {

struct GpuClaim {
  std::string host = {};
  // CUDA_VISIBLE_DEVICES of the task; nullopt if it is not set.
  std::optional<std::string> visible = std::nullopt;
  bool trains = false;
};

// CUDA_VISIBLE_DEVICES for each task; nullopt leaves it as it is. A list that no other task of the host has is what the
// scheduler gave to the task, and is kept. One that several have is shared out in their order: equal runs of the list,
// the first ones longer; with fewer GPUs than tasks, each gets one, in turns. If some of these tasks train, only they
// get a part, and the others none.
std::vector<std::optional<std::string>> ShareGpus(const std::vector<GpuClaim>& tasks);

}  // namespace millrace::launch
