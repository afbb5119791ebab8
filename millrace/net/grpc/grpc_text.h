// Copies of text that gRPC allocated.
//
// Debian's gRPC is not instrumented, but the dynamic linker may give it our instrumented copies of std::string's
// functions. ThreadSanitizer then sees gRPC's threads write a text without seeing how they hand it over, and reports
// our read of it as a race. In TSan builds these functions read unseen; whatever else looks at gRPC's text works on a
// copy.
#pragma once

#include <grpc/slice.h>

#include <string>

namespace millrace::net {

std::string CopyText(const grpc_slice& slice);
// A null pointer gives "".
std::string CopyText(const char* text);

}  // namespace millrace::net
