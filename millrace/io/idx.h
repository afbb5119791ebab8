// IDX: the format of MNIST's files. A magic number that says type and rank, the dimensions, the
// elements, all big-endian.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "millrace/base/file.h"
#include "millrace/base/status.h"
#include "millrace/tensor/tensor.h"

namespace millrace {

// Reads a file, plain or compressed by gzip (told by its first bytes): uint8, int8, int16, int32, float or
// double. Errors name the file and what is wrong with it: NOT_FOUND when it is missing,
// INVALID_ARGUMENT for a header that makes no sense, DATA_LOSS for too few or too many bytes and
// for damaged compression. Never takes more memory than the file could fill.
StatusOr<Tensor> ReadIdx(const std::string& path, FileSystem* files = FileSystem::Posix());

// Writes it plain. INVALID_ARGUMENT for other types, more than 255 dimensions or one past 32 bits.
Status WriteIdx(const Tensor& tensor, const std::string& path, FileSystem* files = FileSystem::Posix());

}  // namespace millrace
