// Archives of test data, read into memory: thousands of small files cost a file system more than the tests that use
// them.
#pragma once

#include <map>
#include <string>

#include "millrace/base/status.h"

namespace millrace::golden {

// The regular files of a .tar.xz by name. DATA_LOSS if it is none.
StatusOr<std::map<std::string, std::string>> ReadArchive(const std::string& path);

}  // namespace millrace::golden
