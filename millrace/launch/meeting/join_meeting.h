// The way of a process to the meeting place of its job.
#pragma once

#include <memory>
#include <string>

#include "absl/time/time.h"
#include "millrace/base/fd.h"
#include "millrace/launch/meeting/meeting_hello.h"
#include "millrace/launch/meeting/meeting_point.h"
#include "millrace/launch/meeting/sealed_channel.h"

namespace millrace::launch {

struct JoinedMeeting {
  Fd socket = {};
  std::shared_ptr<SealedChannel> channel = nullptr;
  std::string received = {};  // what came behind the welcome, opened
};

// Looks for the meeting place until it is there, and says `hello` (its nonce and key are filled in). After `limit`,
// DEADLINE_EXCEEDED says what was found at each address: nobody, a stranger, an old run, a name that does not resolve.
// FAILED_PRECONDITION if rank 0 refuses this process, with its reason. Blocks.
StatusOr<JoinedMeeting> JoinMeeting(const MeetingPoint& point, MeetingHello hello, absl::Duration limit);

}  // namespace millrace::launch
