// Files by pattern.
#pragma once

#include <string>
#include <vector>

#include "millrace/base/file.h"

namespace millrace {

// The paths that match, sorted. `*` and `?` stand for characters of one name, names that begin with a dot included,
// `[ab]`, `[a-z]` and `[!a]` for one of some, and a backslash takes a character as it is. A pattern
// without any of them is a path that exists or not. Directories that are missing or may not be read have no matches.
StatusOr<std::vector<std::string>> Glob(FileSystem* files, const std::string& pattern);

}  // namespace millrace
