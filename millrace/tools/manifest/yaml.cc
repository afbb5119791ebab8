#include "millrace/tools/manifest/yaml.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace millrace::manifest {
namespace {

// Whether the text is a string without quotes, in every version of YAML: words such as "no", numbers, and characters
// with a meaning are not.
bool IsPlain(const std::string& text) {
  if (text.empty() || !(absl::ascii_isalpha(text[0]) || text[0] == '/' || text[0] == '.')) return false;
  const auto allowed = [](char c) { return absl::ascii_isalnum(c) || absl::StrContains("-_./", std::string(1, c)); };
  if (!std::all_of(text.begin(), text.end(), allowed)) return false;
  for (const char* word : {"y", "n", "yes", "no", "on", "off", "true", "false", "null", ".inf", ".nan"}) {
    if (absl::EqualsIgnoreCase(text, word)) return false;
  }
  return text[0] != '.' || text.size() == 1 || !absl::ascii_isdigit(text[1]);
}

bool IsBlock(const Json& value) {
  const auto* text = value.is_string() ? value.get_ptr<const std::string*>() : nullptr;
  return text != nullptr && absl::EndsWith(*text, "\n") && !absl::StartsWith(*text, " ");
}

std::string Scalar(const Json& value) {
  if (value.is_string() && IsPlain(value.get<std::string>())) return value.get<std::string>();
  return value.dump();  // JSON's strings, numbers and empty containers are YAML's
}

void Write(const Json& value, int indent, std::string* yaml);

// What follows "key:" or "-".
void WriteValue(const Json& value, int indent, bool in_list, std::string* yaml) {
  const std::string spaces(indent, ' ');
  if (IsBlock(value)) {
    absl::StrAppend(yaml, " |\n");
    const auto& text = value.get_ref<const std::string&>();
    for (const absl::string_view line : absl::StrSplit(absl::string_view(text).substr(0, text.size() - 1), '\n'))
      absl::StrAppend(yaml, spaces, line, "\n");
  } else if (value.is_structured() && !value.empty()) {
    // An element of a list begins on the line of its dash.
    std::string inner;
    Write(value, indent, &inner);
    absl::StrAppend(yaml, in_list ? absl::StrCat(" ", inner.substr(indent)) : absl::StrCat("\n", inner));
  } else {
    absl::StrAppend(yaml, " ", Scalar(value), "\n");
  }
}

void Write(const Json& value, int indent, std::string* yaml) {
  const std::string spaces(indent, ' ');
  if (value.is_object()) {
    for (const auto& [key, member] : value.items()) {
      absl::StrAppend(yaml, spaces, Scalar(Json(key)), ":");
      WriteValue(member, indent + 2, /*in_list=*/false, yaml);
    }
  } else {
    for (const Json& element : value) {
      absl::StrAppend(yaml, spaces, "-");
      WriteValue(element, indent + 2, /*in_list=*/true, yaml);
    }
  }
}

}  // namespace

std::string ToYaml(const std::vector<Json>& documents) {
  std::string yaml;
  for (const Json& document : documents) {
    if (!yaml.empty()) absl::StrAppend(&yaml, "---\n");
    Write(document, 0, &yaml);
  }
  return yaml;
}

}  // namespace millrace::manifest
