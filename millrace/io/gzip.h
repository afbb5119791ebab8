// Reading and writing compressed files.
#pragma once

#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "millrace/base/file.h"
#include "millrace/base/status.h"

namespace millrace {

// The most bytes that one compressed byte can expand to.
inline constexpr uint64_t kMaxGzipExpansion = 1032;

// The content of `file`, decompressed if it begins with gzip's magic number. Its Read returns DATA_LOSS, naming `path`,
// for a damaged or truncated stream.
StatusOr<std::unique_ptr<SequentialFile>> Decompressed(std::unique_ptr<SequentialFile> file, const std::string& path);

// Compression of a whole file.
enum class Compression { kNone, kZlib, kGzip };
// Parses "GZIP" and "ZLIB"; anything else means kNone, as in TensorFlow.
Compression CompressionOf(absl::string_view name);

// The decompressed content of `file`. Read returns DATA_LOSS, naming `path`, if it is not compressed in the given way.
StatusOr<std::unique_ptr<SequentialFile>> Decompressed(std::unique_ptr<SequentialFile> file, const std::string& path,
                                                       Compression compression);

// Compresses what is appended and writes it to `file`. After Flush a reader can decompress all of it.
StatusOr<std::unique_ptr<WritableFile>> Compressed(std::unique_ptr<WritableFile> file, const std::string& path,
                                                   Compression compression);

}  // namespace millrace
