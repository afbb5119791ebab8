#include "millrace/base/glob.h"

#include <fnmatch.h>

#include <algorithm>

#include "absl/strings/str_split.h"

namespace millrace {
namespace {

constexpr char kSpecial[] = "*?[\\";

}  // namespace

StatusOr<std::vector<std::string>> Glob(FileSystem* files, const std::string& pattern) {
  if (pattern.empty()) return std::vector<std::string>();
  const size_t special = pattern.find_first_of(kSpecial);
  if (special == std::string::npos) {
    const Status status = files->Exists(pattern);
    if (status.ok()) return std::vector<std::string>{pattern};
    if (absl::IsPermissionDenied(status)) return status;
    return std::vector<std::string>();
  }
  // The directories before the first special character are literal.
  const size_t slash = pattern.rfind('/', special);
  if (slash != std::string::npos && slash > 0 && pattern[slash - 1] == '/') return std::vector<std::string>();
  std::vector<std::string> found = {slash == std::string::npos ? "." : slash == 0 ? "/" : pattern.substr(0, slash)};
  const std::vector<std::string> name_patterns = absl::StrSplit(pattern.substr(slash + 1), '/');
  for (const std::string& name_pattern : name_patterns) {
    std::vector<std::string> next;
    for (const std::string& directory : found) {
      const StatusOr<std::vector<std::string>> names = files->List(directory);
      // An unreadable directory is an error only if the pattern names it literally.
      if (absl::IsPermissionDenied(names.status()) && found.size() == 1) return names.status();
      if (!names.ok()) continue;
      for (const std::string& name : *names) {
        if (fnmatch(name_pattern.c_str(), name.c_str(), 0) == 0) next.push_back(JoinPath(directory, name));
      }
    }
    found = std::move(next);
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace millrace
