// Reading checkpoints of the first format, as Restore, RestoreSlice and RestoreV2 do.
#pragma once

#include <memory>
#include <string>

#include "millrace/io/legacy_checkpoint.h"

namespace millrace {

// NOT_FOUND as TensorFlow says it.
StatusOr<std::unique_ptr<LegacyCheckpointReader>> OpenLegacy(FileSystem* files, const std::string& pattern);

// The tensor, or the part that `shape_and_slice` (unless empty) names. INVALID_ARGUMENT when it has another type or shape.
StatusOr<Tensor> RestoreLegacy(const LegacyCheckpointReader& reader, const std::string& name,
                               const std::string& shape_and_slice, DType dtype);

}  // namespace millrace
