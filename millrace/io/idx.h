// IDX, the format of MNIST's files: a magic number that encodes type and rank, the dimensions and the elements, all
// big-endian.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "millrace/base/file.h"
#include "millrace/base/status.h"
#include "millrace/tensor/tensor.h"

namespace millrace {

// Reads a file of uint8, int8, int16, int32, float or double, plain or gzip (detected by its magic number). Errors name
// the file and the problem: NOT_FOUND if it is missing, INVALID_ARGUMENT for an invalid header, DATA_LOSS for too few
// or too many bytes or a damaged gzip stream. Never allocates more memory than the file's size can account for.
StatusOr<Tensor> ReadIdx(const std::string& path, FileSystem* files = FileSystem::Posix());

// Writes an uncompressed file. INVALID_ARGUMENT for other types, more than 255 dimensions or a dimension of more than
// 32 bits.
Status WriteIdx(const Tensor& tensor, const std::string& path, FileSystem* files = FileSystem::Posix());

}  // namespace millrace
