#pragma once

#include <cstdint>

#include "millrace/tensor/dtype.h"

namespace millrace {

// Copies n contiguous elements of type `dtype`; strings, handles and variants are assigned. Offsets are in elements.
// The ranges must not overlap.
void CopyElements(DType dtype, const void* from, int64_t from_offset, void* to, int64_t to_offset, int64_t n);

}  // namespace millrace
