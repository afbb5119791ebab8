// Feeds arbitrary bytes to both ends of a meeting.
#include <cstddef>
#include <cstdint>

#include "millrace/launch/meeting/meeting_hello.h"
#include "millrace/net/tls/sealed_records.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  const absl::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (const auto greeting = launch::MeetingGreeting::Decode(bytes);
      greeting.ok() && greeting->Encode() != absl::StrCat(bytes, "\n"))
    __builtin_trap();
  if (const auto hello = launch::MeetingHello::Decode(bytes);
      hello.ok() && launch::MeetingHello::Decode(hello->Encode()).value().key != hello->key)
    __builtin_trap();
  std::string plain;
  net::RecordOpener opener(std::string(net::kSealKeySize, 'k'), 1);
  if (opener.Open(bytes, &plain).ok() && !plain.empty()) __builtin_trap();
  return 0;
}
