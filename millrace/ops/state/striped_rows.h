// Access to rows of variables under their stripes' locks.
#pragma once

#include <algorithm>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "millrace/ops/state/slice_addresses.h"
#include "millrace/runtime/kernel.h"
#include "millrace/runtime/row_locks.h"

namespace millrace {

// Indices of slices of a SliceAddresses, all of one stripe. Those after the first `n`, up to `visible`, come next and
// may be prefetched.
struct SliceBatch {
  const int64_t* slices;
  int64_t n;
  int64_t visible;
};

// RowLayout::StripeOf for many elements; a division would take longer than what is done with most rows.
class StripeFinder {
 public:
  explicit StripeFinder(const RowLayout& layout)
      : block_(std::max<int64_t>(1, layout.row_size * layout.block_rows)),
        bits_((block_ & (block_ - 1)) == 0 ? __builtin_ctzll(static_cast<uint64_t>(block_)) : -1) {}
  int StripeOf(int64_t offset) const {
    return static_cast<int>((bits_ >= 0 ? offset >> bits_ : offset / block_) % RowLayout::kStripes);
  }

 private:
  const int64_t block_;  // in elements
  const int bits_;       // log2 of it, if it is a power of two
};

// Holds the stripe of one row after another, for a reader that has them in another order than that of their stripes.
class StripeHold {
 public:
  explicit StripeHold(RowLocks* locks) : locks_(locks) {}
  StripeHold(const StripeHold&) = delete;
  StripeHold& operator=(const StripeHold&) = delete;
  ~StripeHold() { Release(); }

  // Releases the stripe that is held, unless it is this one and was not held for long.
  void MoveTo(int stripe) {
    if (stripe == held_ && --left_ > 0) return;
    Take(stripe);
  }

 private:
  void Release();
  void Take(int stripe);

  RowLocks* const locks_;
  int held_ = -1;
  int64_t left_ = 0;
};

// Calls body for all slices of `where` that are not skipped, while holding the row's stripe in all of `locks`, acquired
// in that order. Slices of one row are processed in order, so the result does not depend on the number of threads.
// Every slice must be within one row of `layout`, which all tensors of the locks share.
void ForEachSlice(KernelContext& ctx, const RowLayout& layout, absl::Span<RowLocks* const> locks,
                  const SliceAddresses& where, absl::FunctionRef<void(const SliceBatch&)> body);

// The prefetch distance in slices.
inline constexpr int64_t kPrefetchSlices = 6;

// Prefetches slice k + kPrefetchSlices of the batch: its row in `data`, and its position in `dense`, where slices are
// contiguous.
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
