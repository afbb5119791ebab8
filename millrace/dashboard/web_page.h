// The files of the page, which are within the program, and the page as one file.
#pragma once

#include <map>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "nlohmann/json.hpp"

namespace millrace::dashboard {

struct WebFile {
  absl::string_view name;  // "main.js"
  absl::string_view text;
};

// A script comes after those that it imports. Never destroyed.
absl::Span<const WebFile> WebFiles();
// Null if there is none of that name.
const WebFile* FindWebFile(absl::string_view name);
// "text/javascript; charset=utf-8".
std::string TypeOf(absl::string_view name);

// The text compressed as browsers understand it (Content-Encoding: gzip); empty if that fails.
std::string Gzip(absl::string_view text);

// The page with everything that it needs: styles, scripts, the document and the ends of the tasks' output. It asks
// nobody for anything, also when it is opened from a disk. Text of programs stays text.
std::string SavedPage(const nlohmann::json& document, const std::map<std::string, std::string>& outputs);

}  // namespace millrace::dashboard
