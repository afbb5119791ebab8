// Conversion between Status and gRPC's errors, whose codes are the same numbers.
#pragma once

#include <grpc/slice.h>
#include <grpc/status.h>

#include <string>

#include "millrace/base/status.h"

namespace millrace::net {

grpc_status_code ToGrpcCode(absl::StatusCode code);

// Truncates the message if necessary: HTTP/2 peers reject percent-encoded headers of more than 8 KiB, and the code
// would be lost too.
std::string ToGrpcMessage(absl::string_view message);

// An invalid code becomes UNKNOWN.
Status FromGrpc(int code, absl::string_view message);

// `text` with IPv6 addresses in their usual form, "ipv6:[::1]:2222", instead of gRPC's URI form, "ipv6:%5B::1%5D:2222".
std::string WithPlainAddresses(absl::string_view text);

// `text` with the failure of a name's look-up in plain words, "its name does not resolve (Domain name not found)", in
// place of gRPC's, which names its library, the record that was asked for and the name once more.
std::string WithPlainLookup(absl::string_view text);

}  // namespace millrace::net
