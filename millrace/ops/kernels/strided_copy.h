// Strided copies of boxes of elements, shared by slices, transposes, tiles, pads and concatenations.
#pragma once

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "millrace/device/copy_box.h"
#include "millrace/runtime/kernel.h"

namespace millrace {

// Row-major strides of a shape.
absl::InlinedVector<int64_t, 8> RowMajorStrides(absl::Span<const int64_t> dims);

// Copies the box whose first element is at from[from_offset] and to[to_offset]; offsets are in elements. Source and
// target have the same type and must not overlap. Large copies use the device's threads. In device memory, where both
// must be then, the copy is only enqueued: kernels that only allocate by KernelContext::AllocateDeviceOutput and copy
// by this are kernels for GPUs, too.
Status StridedCopy(KernelContext& ctx, CopyBox box, const Tensor& from, int64_t from_offset, Tensor* to,
                   int64_t to_offset);

// Writes zeros, in host or device memory; elements that are not plain keep their first value.
Status ClearTensor(KernelContext& ctx, Tensor* tensor);

}  // namespace millrace
