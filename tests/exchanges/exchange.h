// What a client said to a server and what that answered, in a file.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "millrace/base/status.h"

namespace millrace::exchanges {

// The service that clients of a session call.
constexpr char kService[] = "/tensorflow.MasterService/";

// One call, by the bytes that were sent.
struct Exchange {
  std::string method;  // "RunStep"
  std::string request;
  Status status;         // of the call
  std::string response;  // empty after an error
};

// The contents of a file with these calls, in this order.
std::string Write(const std::vector<Exchange>& exchanges);

// DATA_LOSS if `contents` is no such file, or is cut off.
StatusOr<std::vector<Exchange>> Read(absl::string_view contents);

}  // namespace millrace::exchanges
