// Device names, whole and partial: "/job:ps/replica:0/task:0/device:CPU:0", "/cpu:0", "/job:ps".
#pragma once

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "millrace/base/status.h"

namespace millrace {

struct DeviceName {
  std::optional<std::string> job;
  std::optional<int> replica;
  std::optional<int> task;
  std::optional<std::string> type;  // "CPU", "GPU": upper case
  std::optional<int> index;

  // INVALID_ARGUMENT quotes what could not be understood. "" is a name that says nothing.
  static StatusOr<DeviceName> Parse(absl::string_view text);
  std::string ToString() const;

  bool IsFull() const { return job && replica && task && type && index; }
  // True when everything that this one says, `full` says too.
  bool Matches(const DeviceName& full) const;
  // What this one says, and `base` where it says nothing.
  DeviceName Over(const DeviceName& base) const;
};

}  // namespace millrace
