// Reading of checkpoints of the first format, for Restore, RestoreSlice and RestoreV2.
#pragma once

#include <memory>
#include <string>

#include "millrace/io/legacy_checkpoint.h"

namespace millrace {

// NOT_FOUND with TensorFlow's message.
StatusOr<std::unique_ptr<LegacyCheckpointReader>> OpenLegacy(FileSystem* files, const std::string& pattern);

// The tensor or, unless it is empty, the slice `shape_and_slice`. INVALID_ARGUMENT if its type or shape differs.
StatusOr<Tensor> RestoreLegacy(const LegacyCheckpointReader& reader, const std::string& name,
                               const std::string& shape_and_slice, DType dtype);

}  // namespace millrace
