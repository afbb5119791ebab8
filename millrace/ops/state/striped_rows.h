// Work on rows of variables under the locks of their stripes.
#pragma once

#include <algorithm>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "millrace/ops/state/slice_addresses.h"
#include "millrace/runtime/kernel.h"
#include "millrace/runtime/row_locks.h"

namespace millrace {

// Some slices of a SliceAddresses, by number, all of one stripe. The numbers after the first `n`, up to
// `visible`, are those that come next: whoever works on these may fetch those from memory.
struct SliceBatch {
  const int64_t* slices;
  int64_t n;
  int64_t visible;
};

// Calls body for all slices of `where` that are not left out, each while its row's stripe in all of `locks` is
// held, taken in that order. Slices of one row come in their order, so that the result does not depend on the
// number of threads. Every slice lies within one row of `layout`; all tensors that the locks belong to
// have that layout.
void ForEachSlice(KernelContext& ctx, const RowLayout& layout, absl::Span<RowLocks* const> locks,
                  const SliceAddresses& where, absl::FunctionRef<void(const SliceBatch&)> body);

// How many slices ahead of the work memory is asked for.
inline constexpr int64_t kPrefetchSlices = 6;

// Asks for what slice k + kPrefetchSlices of the batch needs: its row in `data`, and its place in `dense`, where
// slices lie one after another.
template <typename T>
inline void PrefetchAhead(const SliceBatch& batch, int64_t k, const SliceAddresses& where, const T* data,
                          const T* dense) {
  if (k + kPrefetchSlices >= batch.visible) return;
  constexpr int64_t kLine = 64, kMostBytes = 512;
  const int64_t slice = batch.slices[k + kPrefetchSlices];
  const char* const row = reinterpret_cast<const char*>(data + where.offsets[slice]);
  const char* const other = reinterpret_cast<const char*>(dense + slice * where.size);
  const int64_t bytes = std::min<int64_t>(kMostBytes, where.size * static_cast<int64_t>(sizeof(T)));
  for (int64_t i = 0; i < bytes; i += kLine) __builtin_prefetch(row + i, 1);
  for (int64_t i = 0; i < bytes; i += kLine) __builtin_prefetch(other + i, 1);
}

}  // namespace millrace
