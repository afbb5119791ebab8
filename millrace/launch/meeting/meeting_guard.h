// How processes that meet prove to each other that they belong to one job.
#pragma once

#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "millrace/base/status.h"

namespace millrace::launch {

// The environment variable with a job's secret, and the one with the socket of munge's daemon if it is not at its usual
// place.
inline constexpr char kJobSecretVariable[] = "MILLRACE_JOB_SECRET";
inline constexpr char kMungeSocketVariable[] = "MUNGE_SOCKET";

// Seals messages so that only the other processes of the job can read them, and opens those that they sealed.
class MeetingGuard {
 public:
  virtual ~MeetingGuard() = default;
  // For messages: "the job secret".
  virtual std::string name() const = 0;
  virtual StatusOr<std::string> Seal(absl::string_view message) = 0;
  // PERMISSION_DENIED if it was sealed by somebody else.
  virtual StatusOr<std::string> Open(absl::string_view sealed) = 0;
};

// A secret that all processes of the job have, of at least 16 characters (INVALID_ARGUMENT otherwise); `label` is the
// job's.
StatusOr<std::unique_ptr<MeetingGuard>> MakeSecretGuard(absl::string_view secret, absl::string_view label);
// munge, which Slurm uses itself: the same user on the nodes of one cluster. Its library is opened at run time;
// UNAVAILABLE if that, or its daemon's socket, is not there. `socket` is empty for the usual one.
StatusOr<std::unique_ptr<MeetingGuard>> MakeMungeGuard(const std::string& socket);
// Nothing: for Unix sockets, whose ends compare the users themselves.
std::unique_ptr<MeetingGuard> MakeSameUserGuard();

}  // namespace millrace::launch
