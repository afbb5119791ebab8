// Feeds arbitrary bytes to the parser of requests and to the decision who gets in.
#include <cstddef>
#include <cstdint>

#include "millrace/dashboard/access.h"
#include "millrace/dashboard/http_request.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace::dashboard;
  const absl::string_view bytes(reinterpret_cast<const char*>(data), size);
  const size_t head = HeadSize(bytes);
  if (head > size) __builtin_trap();
  const auto request = ParseHttpRequest(bytes.substr(0, head));
  if (!request.ok()) return 0;
  // What it accepts is a path, and one Host.
  if (request->path.empty() || request->path[0] != '/' || !request->Header("host")) __builtin_trap();
  request->Parameter("task");
  const Access access({.token = "token", .cookie_name = "c", .cookie_value = "value", .hosts = {}});
  // Nobody guesses these from nothing.
  if (access.Identifies(*request) && bytes.find("token") == absl::string_view::npos &&
      bytes.find("value") == absl::string_view::npos)
    __builtin_trap();
  access.Check(*request, /*secret=*/true).IgnoreError();
  return 0;
}
