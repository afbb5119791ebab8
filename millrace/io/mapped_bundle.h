// Tensors of a checkpoint without a copy: their memory is the file's, as the page cache has it.
#pragma once

#include <string>
#include <vector>

#include "millrace/io/bundle.h"

namespace millrace {

// Reads tensors of a checkpoint on the local file system, and verifies their checksums on the pool's threads. Large
// ones whose bytes begin at a multiple of 64 in the file, as BundleWriter writes them, become private mappings: a write
// to one stays in this process. While they are in use, their files may be removed or replaced by others, but not
// overwritten or truncated in place. The others are read into new memory.
StatusOr<std::vector<Tensor>> ReadMapped(const BundleReader& reader, absl::Span<const std::string> names,
                                         ThreadPool* pool);

}  // namespace millrace
