// Converts a session's options to TensorFlow's messages.
#pragma once

#include <vector>

#include "millrace/proto/config.pb.h"
#include "millrace/proto/master.pb.h"
#include "millrace/session/session.h"

namespace millrace {

// For CreateSession: options.config overridden by the other options. If any pass is disabled, all passes of the server
// are, since the protocol cannot express more.
pb::ConfigProto ConfigOf(const SessionOptions& options);
// For RunStep. `timeout` is rounded up to milliseconds; an infinite one becomes 0.
pb::RunOptions RunOptionsProto(const RunOptions& options, absl::Duration timeout);
// The master's own devices first.
std::vector<DeviceInfo> DeviceInfos(const pb::ListDevicesResponse& response);

}  // namespace millrace
