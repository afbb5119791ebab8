#include "millrace/launch/training_text.h"

#include <algorithm>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"

namespace millrace::launch {
namespace {

constexpr size_t kMaxLine = 1000;  // only this much of a line is searched

// The text after the first `word` in `line`, from `from` on, that ends a word: "global_step" but not "footstep" or
// "steps".
absl::string_view After(absl::string_view line, absl::string_view word, size_t from, size_t* next) {
  for (size_t at = from; at + word.size() <= line.size(); ++at) {
    if (!absl::EqualsIgnoreCase(line.substr(at, word.size()), word)) continue;
    if (at > 0 && absl::ascii_isalpha(line[at - 1])) continue;
    const size_t end = at + word.size();
    if (end < line.size() && absl::ascii_isalnum(line[end])) continue;
    *next = end;
    return line.substr(end);
  }
  *next = line.size();
  return {};
}

absl::string_view SkipSigns(absl::string_view text) {
  size_t at = 0;
  while (at < text.size() && at < 8 && absl::StrContains(" \t:=#[(\"'", text.substr(at, 1))) ++at;
  return text.substr(at);
}

std::optional<int64_t> NumberAfter(absl::string_view line, absl::string_view word) {
  for (size_t at = 0; at < line.size();) {
    const absl::string_view rest = SkipSigns(After(line, word, at, &at));
    const size_t digits = std::find_if_not(rest.begin(), rest.end(), absl::ascii_isdigit) - rest.begin();
    int64_t step;
    // "step 0.3 s" is a time.
    const bool fraction = digits + 1 < rest.size() && rest[digits] == '.' && absl::ascii_isdigit(rest[digits + 1]);
    if (digits > 0 && !fraction && absl::SimpleAtoi(rest.substr(0, digits), &step)) return step;
  }
  return std::nullopt;
}

}  // namespace

TrainingProgress ReadTrainingText(absl::string_view line) {
  line = line.substr(0, kMaxLine);
  TrainingProgress progress;
  for (const absl::string_view word : {"global step", "global_step", "step"}) {
    if (!progress.step) progress.step = NumberAfter(line, word);
  }
  for (size_t at = 0; at < line.size() && !progress.loss;) {
    const absl::string_view rest = SkipSigns(After(line, "loss", at, &at));
    const auto in_number = [](char c) {
      return absl::ascii_isdigit(c) || c == '+' || c == '-' || c == '.' || c == 'e' || c == 'E';
    };
    const size_t size = std::find_if_not(rest.begin(), rest.end(), in_number) - rest.begin();
    absl::string_view number = rest.substr(0, size);
    while (!number.empty() && number.back() == '.') number.remove_suffix(1);
    double loss;
    if (absl::StartsWithIgnoreCase(rest, "nan")) {
      progress.loss = std::numeric_limits<double>::quiet_NaN();
    } else if (!number.empty() && absl::SimpleAtod(number, &loss)) {
      progress.loss = loss;
    }
  }
  return progress;
}

}  // namespace millrace::launch
