#include "millrace/launch/stream_lines.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace millrace::launch {

void StreamLines::Add(absl::string_view bytes, const OnLine& on_line) {
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    const absl::string_view part = bytes.substr(0, end);
    const size_t room = limit_ - partial_.size();
    if (part.size() > room) {
      absl::StrAppend(&partial_, part.substr(0, room));
      on_line(partial_);
      partial_.clear();
      bytes.remove_prefix(room);
      continue;
    }
    if (end == absl::string_view::npos) {
      absl::StrAppend(&partial_, part);
      return;
    }
    if (partial_.empty()) {
      on_line(part);
    } else {
      absl::StrAppend(&partial_, part);
      on_line(partial_);
      partial_.clear();
    }
    bytes.remove_prefix(end + 1);
  }
}

void StreamLines::Flush(const OnLine& on_line) {
  if (!partial_.empty()) on_line(partial_);
  partial_.clear();
}

std::string ForTerminal(absl::string_view line) {
  while (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  if (const size_t at = line.rfind('\r'); at != absl::string_view::npos) line.remove_prefix(at + 1);
  std::string shown;
  bool coloured = false;
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (c == '\033') {
      // Keeps a sequence "ESC [ numbers letter" if it sets a colour, and drops it otherwise.
      size_t end = i + 1;
      if (end < line.size() && line[end] == '[') {
        ++end;
        while (end < line.size() && (absl::ascii_isdigit(line[end]) || line[end] == ';' || line[end] == '?')) ++end;
        if (end < line.size() && line[end] == 'm') {
          absl::StrAppend(&shown, line.substr(i, end - i + 1));
          coloured = true;
        }
      }
      i = std::min(end, line.size() - 1);
    } else if (c == '\t' || !absl::ascii_iscntrl(c)) {
      shown.push_back(c);
    }
  }
  if (coloured) absl::StrAppend(&shown, "\033[0m");
  return shown;
}

}  // namespace millrace::launch
