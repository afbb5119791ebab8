// Device names, full or partial: "/job:ps/replica:0/task:0/device:CPU:0", "/cpu:0", "/job:ps".
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

  // INVALID_ARGUMENT, quoting the offending part, for a malformed name. "" is a valid name with nothing set.
  static StatusOr<DeviceName> Parse(absl::string_view text);
  std::string ToString() const;

  bool IsFull() const { return job && replica && task && type && index; }
  // True if every field set here has the same value in `full`.
  bool Matches(const DeviceName& full) const;
  // This name with unset fields taken from `base`.
  DeviceName Over(const DeviceName& base) const;
};

}  // namespace millrace
