// What `millrace place` does: becomes the task of a cluster that a scheduler's process is.
#pragma once

#include <string>

#include "millrace/launch/launcher.h"
#include "millrace/launch/place/find_place.h"

namespace millrace::launch {

struct PlaceOptions {
  // Its job's groups are those of the place; `meeting` is filled in.
  LauncherOptions launch = {};
  std::string meet = {};  // the host of rank 0, with or without a port
};

// Where all addresses are known (pods, TF_CONFIG), replaces this process by the program and returns only if that fails.
// Otherwise rank 0 supervises the job as `millrace launch` does, and the others run its keepers: each shows its
// program's output and passes signals on, and all end with the job's exit code. The process must have one thread.
int RunPlace(const Surroundings& here, const Place& place, PlaceOptions options);

}  // namespace millrace::launch
