// Reading files that may be compressed.
#pragma once

#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "millrace/base/file.h"
#include "millrace/base/status.h"

namespace millrace {

// The most bytes that one compressed byte can stand for.
inline constexpr uint64_t kMaxGzipExpansion = 1032;

// The content of `file`: as it is, or decompressed when it starts as a gzip file does. Its Read gives
// DATA_LOSS, naming `path`, for a damaged or truncated stream.
StatusOr<std::unique_ptr<SequentialFile>> Decompressed(std::unique_ptr<SequentialFile> file,
                                                       const std::string& path);

// How a file of records or of records' bytes is compressed as a whole.
enum class Compression { kNone, kZlib, kGzip };
// "GZIP" and "ZLIB"; everything else means none, as in TensorFlow.
Compression CompressionOf(absl::string_view name);

// The content of `file`, compressed in the given way: DATA_LOSS, naming `path`, when it is not.
StatusOr<std::unique_ptr<SequentialFile>> Decompressed(std::unique_ptr<SequentialFile> file, const std::string& path,
                                                       Compression compression);

// What is appended goes compressed into `file`. After Flush a reader gets all of it.
StatusOr<std::unique_ptr<WritableFile>> Compressed(std::unique_ptr<WritableFile> file, const std::string& path,
                                                   Compression compression);

}  // namespace millrace
