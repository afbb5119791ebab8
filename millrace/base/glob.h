// Path name expansion.
#pragma once

#include <string>
#include <vector>

#include "millrace/base/file.h"

namespace millrace {

// The paths that match `pattern`, sorted. `*` and `?` match characters within one path component (including a leading
// dot), `[ab]`, `[a-z]` and `[!a]` match one character of a set, and a backslash escapes the next character. A pattern
// without any of these matches itself if it exists. Missing directories have no matches, nor do unreadable ones among
// several; an unreadable directory that the pattern names literally is PERMISSION_DENIED.
StatusOr<std::vector<std::string>> Glob(FileSystem* files, const std::string& pattern);

}  // namespace millrace
