// What a session's options are in TensorFlow's words.
#pragma once

#include "millrace/proto/config.pb.h"
#include "millrace/session/session.h"

namespace millrace {

// For CreateSession: options.config with the other options over it. A pass that is switched off switches all of the server's off, since
// the protocol has no more than that.
pb::ConfigProto ConfigOf(const SessionOptions& options);
// For RunStep. `timeout` in milliseconds, rounded up; infinite is 0.
pb::RunOptions RunOptionsProto(const RunOptions& options, absl::Duration timeout);

}  // namespace millrace
