// Reading files that may be compressed.
#pragma once

#include <memory>
#include <string>

#include "millrace/base/file.h"
#include "millrace/base/status.h"

namespace millrace {

// The most bytes that one compressed byte can stand for.
inline constexpr uint64_t kMaxGzipExpansion = 1032;

// The content of `file`: as it is, or decompressed when it starts as a gzip file does. Its Read gives
// DATA_LOSS, naming `path`, for a damaged or truncated stream.
StatusOr<std::unique_ptr<SequentialFile>> Decompressed(std::unique_ptr<SequentialFile> file,
                                                       const std::string& path);

}  // namespace millrace
