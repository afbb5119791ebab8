// What processes say when they meet. Rank 0 listens, and speaks first:
//
//   rank 0:  "millrace meeting 1 NONCE LABEL\n"
//   rank N:  four bytes, the size of what follows, and a MeetingHello, sealed by the guard
//   rank 0:  a record (net/tls/sealed_records.h) under the key in the hello: "welcome", or why not
//
// After "welcome" the connection is that of a keeper to its launcher, in records under the same key. The nonce makes a
// hello good for one connection; the label names the job, so that an old run is recognised.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "millrace/base/status.h"

namespace millrace::launch {

inline constexpr absl::string_view kMeetingWelcome = "welcome";
inline constexpr size_t kMaxMeetingGreeting = 1024, kMaxMeetingHello = 64 << 10;
// The directions of records.
inline constexpr uint8_t kToKeeper = 1, kFromKeeper = 2;

struct MeetingGreeting {
  std::string nonce;  // in hexadecimal digits
  std::string label;

  std::string Encode() const;  // with the newline
  // Without the newline. INVALID_ARGUMENT if a stranger says it.
  static StatusOr<MeetingGreeting> Decode(absl::string_view line);
};

struct MeetingHello {
  std::string nonce = {};  // of the greeting
  std::string key = {};    // for the records: net::kSealKeySize random bytes
  int rank = 0, size = 0;
  std::string jobs = {};     // what the user asked for, "1 ps + 2 worker": it must be the same everywhere
  std::string address = {};  // under which the others reach the host; may be empty if the launcher knows
  std::string gpus = {};     // CUDA_VISIBLE_DEVICES
  bool has_gpus = false;

  std::string Encode() const;
  static StatusOr<MeetingHello> Decode(absl::string_view text);
};

}  // namespace millrace::launch
