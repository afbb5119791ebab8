// Which task of the cluster this process is: what the user asked for, put together with what a scheduler says.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "millrace/launch/job_spec.h"
#include "millrace/launch/place/standing.h"
#include "millrace/launch/task_place.h"

namespace millrace::launch {

struct PlaceRequest {
  // In the order of ranks. If `rest_are_workers`, the tasks that are left over are workers.
  std::vector<TaskGroup> groups = {};
  bool rest_are_workers = false;
  // Given by flags, which take precedence over the scheduler.
  std::optional<int> rank = std::nullopt, size = std::nullopt;
  std::string address = {};  // under which the others reach this host; if empty, what the scheduler says
  int port = 2222;           // of every task in pods
};

struct Place {
  std::string source;  // "flags", "TF_CONFIG", "Slurm", ...
  Standing standing = {};
  std::vector<TaskGroup> groups = {};  // complete
  TaskName task = {};
  // Set if all addresses are known at once: in pods, and by TF_CONFIG. Otherwise the tasks have to meet.
  std::optional<ClusterAddresses> cluster = std::nullopt;

  // What was found and from which variables, for a person.
  std::string Explain() const;
};

// INVALID_ARGUMENT says what is missing or contradicts, and what to do.
StatusOr<Place> FindPlace(const Surroundings& here, const PlaceRequest& request);

}  // namespace millrace::launch
