#include "millrace/launch/meeting/meeting_hello.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/strip.h"
#include "millrace/net/tls/sealed_records.h"
#include "nlohmann/json.hpp"

namespace millrace::launch {
namespace {

constexpr absl::string_view kMeetingPrefix = "millrace meeting 1 ";
constexpr size_t kNonceDigits = 32;

bool IsHex(absl::string_view text) { return std::all_of(text.begin(), text.end(), absl::ascii_isxdigit); }

bool TakeText(const nlohmann::json& from, const char* name, std::string* to) {
  const auto found = from.find(name);
  if (found == from.end() || !found->is_string()) return false;
  *to = found->get<std::string>();
  return true;
}

bool TakeInt(const nlohmann::json& from, const char* name, int* to) {
  const auto found = from.find(name);
  if (found == from.end() || !found->is_number_unsigned() || found->get<uint64_t>() > 1000000) return false;
  *to = found->get<int>();
  return true;
}

}  // namespace

std::string MeetingGreeting::Encode() const { return absl::StrCat(kMeetingPrefix, nonce, " ", label, "\n"); }

StatusOr<MeetingGreeting> MeetingGreeting::Decode(absl::string_view line) {
  absl::string_view rest = line;
  if (!absl::ConsumePrefix(&rest, kMeetingPrefix) || rest.size() < kNonceDigits + 1 || rest[kNonceDigits] != ' ' ||
      !IsHex(rest.substr(0, kNonceDigits)))
    return InvalidArgument("no meeting place, it says '", absl::CHexEscape(line.substr(0, 40)), "'");
  return MeetingGreeting{std::string(rest.substr(0, kNonceDigits)), std::string(rest.substr(kNonceDigits + 1))};
}

std::string MeetingHello::Encode() const {
  nlohmann::json text = {{"nonce", nonce}, {"key", absl::BytesToHexString(key)},
                         {"rank", rank},   {"size", size},
                         {"jobs", jobs},   {"address", address}};
  if (has_gpus) text["gpus"] = gpus;
  return text.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

StatusOr<MeetingHello> MeetingHello::Decode(absl::string_view text) {
  const nlohmann::json read = nlohmann::json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  MeetingHello hello;
  std::string key;
  if (!read.is_object() || !TakeText(read, "nonce", &hello.nonce) || !TakeText(read, "key", &key) ||
      key.size() != 2 * net::kSealKeySize || !IsHex(key) || !TakeInt(read, "rank", &hello.rank) ||
      !TakeInt(read, "size", &hello.size) || !TakeText(read, "jobs", &hello.jobs) ||
      !TakeText(read, "address", &hello.address))
    return InvalidArgument("a malformed hello");
  hello.key = absl::HexStringToBytes(key);
  hello.has_gpus = TakeText(read, "gpus", &hello.gpus);
  return hello;
}

}  // namespace millrace::launch
