// Errors as gRPC carries them: the codes are the same numbers.
#pragma once

#include <grpc/slice.h>
#include <grpc/status.h>

#include <string>

#include "millrace/base/status.h"

namespace millrace::net {

grpc_status_code ToGrpcCode(absl::StatusCode code);

// The message as it may travel: HTTP/2 peers refuse headers of more than 8 KiB, percent-encoded, and then the code would be lost too.
std::string ToGrpcMessage(absl::string_view message);

// A code that is none becomes UNKNOWN.
Status FromGrpc(int code, absl::string_view message);

// `text` with IPv6 addresses as people write them, "ipv6:[::1]:2222", where gRPC writes parts of a URI, "ipv6:%5B::1%5D:2222".
std::string WithPlainAddresses(absl::string_view text);

}  // namespace millrace::net
