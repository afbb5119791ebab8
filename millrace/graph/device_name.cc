#include "millrace/graph/device_name.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace millrace {
namespace {

// Letters, digits and underscores after a first letter.
bool IsIdentifier(absl::string_view text) {
  if (text.empty() || !absl::ascii_isalpha(static_cast<unsigned char>(text[0]))) return false;
  for (char c : text) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) && c != '_') return false;
  }
  return true;
}

// A number from 0, or "*" for any.
bool ParseIndex(absl::string_view text, std::optional<int>* index) {
  if (text == "*") {
    index->reset();
    return true;
  }
  int value;
  if (text.empty() || !absl::ascii_isdigit(static_cast<unsigned char>(text[0])) || !absl::SimpleAtoi(text, &value)) {
    return false;
  }
  *index = value;
  return true;
}

bool ParseType(absl::string_view text, std::optional<std::string>* type) {
  if (text == "*") {
    type->reset();
    return true;
  }
  if (!IsIdentifier(text)) return false;
  *type = absl::AsciiStrToUpper(text);
  return true;
}

// One component: "job:ps", "task:0", "device:CPU:0", "cpu:0".
bool ParsePart(absl::string_view part, DeviceName* name) {
  const std::vector<absl::string_view> words = absl::StrSplit(part, ':');
  if (words[0] == "job" && words.size() == 2) {
    if (words[1] == "*") {
      name->job.reset();
      return true;
    }
    if (!IsIdentifier(words[1])) return false;
    name->job = std::string(words[1]);
    return true;
  }
  if (words[0] == "replica" && words.size() == 2) return ParseIndex(words[1], &name->replica);
  if (words[0] == "task" && words.size() == 2) return ParseIndex(words[1], &name->task);
  if (words[0] == "device" && (words.size() == 2 || words.size() == 3)) {
    return ParseType(words[1], &name->type) && (words.size() == 2 || ParseIndex(words[2], &name->index));
  }
  const bool known = absl::EqualsIgnoreCase(words[0], "cpu") || absl::EqualsIgnoreCase(words[0], "gpu");
  return known && words.size() == 2 && ParseType(words[0], &name->type) && ParseIndex(words[1], &name->index);
}

template <typename T>
bool Agrees(const std::optional<T>& wanted, const std::optional<T>& have) {
  return !wanted || wanted == have;
}

}  // namespace

StatusOr<DeviceName> DeviceName::Parse(absl::string_view text) {
  DeviceName name;
  absl::string_view rest = text;
  if (rest == "/") return name;
  while (!rest.empty()) {
    // A local name such as "CPU:0" needs no slash.
    if (rest[0] == '/') rest.remove_prefix(1);
    const size_t end = std::min(rest.find('/'), rest.size());
    if (!ParsePart(rest.substr(0, end), &name)) {
      return InvalidArgument("device name '", text, "': '", rest.substr(0, end), "' is not understood");
    }
    rest.remove_prefix(end);
  }
  return name;
}

std::string DeviceName::ToString() const {
  std::string text;
  if (job) absl::StrAppend(&text, "/job:", *job);
  if (replica) absl::StrAppend(&text, "/replica:", *replica);
  if (task) absl::StrAppend(&text, "/task:", *task);
  if (type || index) {
    absl::StrAppend(&text, "/device:", type ? *type : "*", ":", index ? absl::StrCat(*index) : "*");
  }
  return text;
}

bool DeviceName::Matches(const DeviceName& full) const {
  return Agrees(job, full.job) && Agrees(replica, full.replica) && Agrees(task, full.task) && Agrees(type, full.type) &&
         Agrees(index, full.index);
}

DeviceName DeviceName::Over(const DeviceName& base) const {
  DeviceName result = *this;
  if (!result.job) result.job = base.job;
  if (!result.replica) result.replica = base.replica;
  if (!result.task) result.task = base.task;
  // An index applies to its own type only: "GPU" over "CPU:1" is not GPU:1.
  if (!result.index && (!result.type || !base.type || result.type == base.type)) result.index = base.index;
  if (!result.type) result.type = base.type;
  return result;
}

}  // namespace millrace
