#include "millrace/launch/output_tail.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace millrace::launch {
namespace {

// The end of `text` that begins with a line and has at most `limit` bytes.
absl::string_view LastLines(absl::string_view text, size_t limit) {
  if (text.size() <= limit) return text;
  const size_t cut = text.size() - limit;
  if (text[cut - 1] == '\n') return text.substr(cut);
  const size_t line = text.find('\n', cut);
  return line == absl::string_view::npos ? text.substr(cut) : text.substr(line + 1);
}

}  // namespace

void OutputTail::Add(absl::string_view line) {
  if (line.size() >= limit_) line.remove_prefix(line.size() - limit_ + 1);
  absl::StrAppend(&text_, line, "\n");
  if (text_.size() > 2 * limit_) text_ = std::string(LastLines(text_, limit_));
}

std::string OutputTail::Text(size_t most) const { return std::string(LastLines(text_, std::min(most, limit_))); }

}  // namespace millrace::launch
