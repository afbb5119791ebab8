#include "millrace/launch/place/node_list.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace millrace::launch {
namespace {

constexpr size_t kMaxDigits = 18;
constexpr size_t kMaxBrackets = 8;  // of one name

Status BadList(absl::string_view list, absl::string_view why) {
  return InvalidArgument("'", absl::CHexEscape(list.substr(0, 200)), "' is not a list of nodes: ", why);
}

// "03-05" or "7" within brackets.
struct NumberRange {
  int64_t first = 0, last = 0;
  size_t width = 0;  // as its first number is written
};

bool ParseNodeNumber(absl::string_view text, int64_t* number) {
  return !text.empty() && text.size() <= kMaxDigits && std::all_of(text.begin(), text.end(), absl::ascii_isdigit) &&
         absl::SimpleAtoi(text, number);
}

StatusOr<std::vector<NumberRange>> ParseRanges(absl::string_view list, absl::string_view inside) {
  std::vector<NumberRange> ranges;
  for (const absl::string_view part : absl::StrSplit(inside, ',')) {
    const size_t dash = part.find('-');
    NumberRange range;
    const absl::string_view first = part.substr(0, dash);
    range.width = first.size();
    if (!ParseNodeNumber(first, &range.first))
      return BadList(list, "brackets hold numbers and ranges, as in [01,03-05]");
    range.last = range.first;
    if (dash != absl::string_view::npos && !ParseNodeNumber(part.substr(dash + 1), &range.last))
      return BadList(list, "a range is two numbers, as in [03-05]");
    if (range.last < range.first) return BadList(list, absl::StrCat("the range ", part, " ends before it begins"));
    ranges.push_back(range);
  }
  return ranges;
}

// Text, and the numbers of the brackets behind it; the last piece of a name may have none.
struct NamePiece {
  absl::string_view text;
  std::vector<NumberRange> ranges;
};

// Appends all names that the pieces from `piece` on make, each after `prefix`.
Status AppendNames(absl::string_view list, const std::vector<NamePiece>& pieces, size_t piece,
                   const std::string& prefix, size_t* characters, std::vector<std::string>* names) {
  if (piece == pieces.size()) {
    *characters += prefix.size();
    if (names->size() >= kMaxNodes || *characters > kMaxNodeCharacters)
      return ResourceExhausted("'", absl::CHexEscape(list.substr(0, 200)), "' names more than ", kMaxNodes, " nodes");
    names->push_back(prefix);
    return absl::OkStatus();
  }
  const std::string with_text = absl::StrCat(prefix, pieces[piece].text);
  if (pieces[piece].ranges.empty()) return AppendNames(list, pieces, piece + 1, with_text, characters, names);
  for (const NumberRange& range : pieces[piece].ranges) {
    for (int64_t number = range.first; number <= range.last; ++number) {
      std::string digits = absl::StrCat(number);
      if (digits.size() < range.width) digits.insert(0, range.width - digits.size(), '0');
      MR_RETURN_IF_ERROR(AppendNames(list, pieces, piece + 1, with_text + digits, characters, names));
    }
  }
  return absl::OkStatus();
}

// The pieces of one name, which has no comma outside of its brackets.
StatusOr<std::vector<NamePiece>> ParseName(absl::string_view list, absl::string_view name) {
  std::vector<NamePiece> pieces;
  while (!name.empty()) {
    const size_t open = name.find('[');
    NamePiece piece = {.text = name.substr(0, open), .ranges = {}};
    if (piece.text.find(']') != absl::string_view::npos) return BadList(list, "a ] without its [");
    for (const char c : piece.text) {
      if (absl::ascii_isspace(c) || absl::ascii_iscntrl(c)) return BadList(list, "a space or a control character");
    }
    if (open != absl::string_view::npos) {
      const size_t close = name.find(']', open);
      if (close == absl::string_view::npos) return BadList(list, "a [ without its ]");
      MR_ASSIGN_OR_RETURN(piece.ranges, ParseRanges(list, name.substr(open + 1, close - open - 1)));
      name.remove_prefix(close + 1);
    } else {
      name = {};
    }
    pieces.push_back(std::move(piece));
    if (pieces.size() > kMaxBrackets) return BadList(list, "a name with too many brackets");
  }
  if (pieces.empty()) return BadList(list, "an empty name");
  return pieces;
}

}  // namespace

StatusOr<std::vector<std::string>> ExpandNodeList(absl::string_view list) {
  std::vector<std::string> names;
  size_t characters = 0;
  size_t begin = 0;
  bool inside = false;
  for (size_t i = 0; i <= list.size(); ++i) {
    if (i < list.size() && list[i] == '[') inside = true;
    if (i < list.size() && list[i] == ']') inside = false;
    if (i < list.size() && (list[i] != ',' || inside)) continue;
    MR_ASSIGN_OR_RETURN(const std::vector<NamePiece> pieces, ParseName(list, list.substr(begin, i - begin)));
    MR_RETURN_IF_ERROR(AppendNames(list, pieces, 0, "", &characters, &names));
    begin = i + 1;
  }
  return names;
}

StatusOr<std::vector<int>> ExpandCounts(absl::string_view counts) {
  std::vector<int> expanded;
  for (absl::string_view part : absl::StrSplit(counts, ',')) {
    const auto bad = [&] {
      return InvalidArgument("'", absl::CHexEscape(counts.substr(0, 200)),
                             "' is not a list of tasks per node, as in 2(x3),1");
    };
    const size_t open = part.find('(');
    absl::string_view times = open == absl::string_view::npos ? "" : part.substr(open);
    int64_t count, repeat = 1;
    if (!ParseNodeNumber(part.substr(0, open), &count) || count > static_cast<int64_t>(kMaxNodes)) return bad();
    if (open != absl::string_view::npos && (!absl::ConsumePrefix(&times, "(x") || !absl::ConsumeSuffix(&times, ")") ||
                                            !ParseNodeNumber(times, &repeat) || repeat < 1))
      return bad();
    if (repeat > static_cast<int64_t>(kMaxNodes - expanded.size()))
      return ResourceExhausted("'", absl::CHexEscape(counts.substr(0, 200)), "' is for more than ", kMaxNodes,
                               " nodes");
    expanded.insert(expanded.end(), repeat, static_cast<int>(count));
  }
  return expanded;
}

}  // namespace millrace::launch
