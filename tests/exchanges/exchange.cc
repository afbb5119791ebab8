#include "tests/exchanges/exchange.h"

#include <cstdint>
#include <cstring>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace millrace::exchanges {
namespace {

constexpr char kMagic[] = "millrace exchanges 1\n";

// A text is its length in eight bytes, the least significant one first, and itself.
void Put(absl::string_view text, std::string* to) {
  uint64_t size = text.size();
  for (int i = 0; i < 8; ++i, size >>= 8) to->push_back(static_cast<char>(size & 0xff));
  absl::StrAppend(to, text);
}

bool Take(absl::string_view* from, std::string* text) {
  if (from->size() < 8) return false;
  uint64_t size = 0;
  for (int i = 7; i >= 0; --i) size = size << 8 | static_cast<unsigned char>((*from)[i]);
  from->remove_prefix(8);
  if (size > from->size()) return false;
  *text = std::string(from->substr(0, size));
  from->remove_prefix(size);
  return true;
}

}  // namespace

std::string Write(const std::vector<Exchange>& exchanges) {
  std::string contents = kMagic;
  for (const Exchange& e : exchanges) {
    Put(e.method, &contents);
    Put(e.request, &contents);
    Put(absl::StrCat(static_cast<int>(e.status.code())), &contents);
    Put(e.status.message(), &contents);
    Put(e.response, &contents);
  }
  return contents;
}

StatusOr<std::vector<Exchange>> Read(absl::string_view contents) {
  if (!absl::ConsumePrefix(&contents, kMagic)) return DataLoss("it does not begin as a file of exchanges does");
  std::vector<Exchange> exchanges;
  while (!contents.empty()) {
    Exchange e;
    std::string code, message;
    int number = 0;
    if (!Take(&contents, &e.method) || !Take(&contents, &e.request) || !Take(&contents, &code) ||
        !absl::SimpleAtoi(code, &number) || !Take(&contents, &message) || !Take(&contents, &e.response)) {
      return DataLoss("it is cut off or damaged after ", exchanges.size(), " exchanges");
    }
    e.status = Status(static_cast<absl::StatusCode>(number), message);
    exchanges.push_back(std::move(e));
  }
  return exchanges;
}

}  // namespace millrace::exchanges
