#include "millrace/ops/kernels/strided_copy.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#ifdef __AVX__
#include <immintrin.h>
#endif

#include "millrace/device/device_memory.h"
#include "millrace/tensor/dispatch.h"
#include "millrace/tensor/resource_handle.h"

namespace millrace {
namespace {

// Bytes of one piece of a parallel copy.
constexpr int64_t kPieceBytes = 1 << 18;
// A square of this side, read along one dimension and written along the other, stays in the cache.
constexpr int64_t kTile = 16;

using Dim = CopyBox::Dim;

template <typename T>
void CopyRun(const T* from, T* to, int64_t n) {
  if constexpr (std::is_trivially_copyable_v<T>) {
    std::memcpy(to, from, static_cast<size_t>(n) * sizeof(T));
  } else {
    std::copy_n(from, n, to);
  }
}

template <typename T>
void CopyLine(const T* from, T* to, const Dim& d) {
  if (d.from == 1 && d.to == 1) return CopyRun(from, to, d.size);
  if (d.to == 1) {
    if (d.from == 0) {
      std::fill_n(to, d.size, *from);
    } else if (d.from == -1) {
      for (int64_t i = 0; i < d.size; ++i) to[i] = from[-i];
    } else {
      for (int64_t i = 0; i < d.size; ++i) to[i] = from[i * d.from];
    }
    return;
  }
  for (int64_t i = 0; i < d.size; ++i) to[i * d.to] = from[i * d.from];
}

// One full tile: to[i * to_stride + j] = from[i + j * from_stride].
template <typename T>
void TransposeTile(const T* from, int64_t from_stride, T* to, int64_t to_stride) {
  T tile[kTile][kTile];
  for (int64_t j = 0; j < kTile; ++j) {
    const T* row = from + j * from_stride;
    for (int64_t i = 0; i < kTile; ++i) tile[i][j] = row[i];
  }
  for (int64_t i = 0; i < kTile; ++i) CopyRun(tile[i], to + i * to_stride, kTile);
}

#ifdef __AVX__
// Eight by eight, in registers.
void TransposeEight(const uint32_t* from, int64_t from_stride, uint32_t* to, int64_t to_stride) {
  __m256 row[8], pair[8], quad[8];
  for (int j = 0; j < 8; ++j) {
    row[j] = _mm256_castsi256_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + j * from_stride)));
  }
  for (int j = 0; j < 4; ++j) {
    pair[2 * j] = _mm256_unpacklo_ps(row[2 * j], row[2 * j + 1]);
    pair[2 * j + 1] = _mm256_unpackhi_ps(row[2 * j], row[2 * j + 1]);
  }
  for (int j = 0; j < 2; ++j) {
    quad[4 * j] = _mm256_shuffle_ps(pair[4 * j], pair[4 * j + 2], 0x44);
    quad[4 * j + 1] = _mm256_shuffle_ps(pair[4 * j], pair[4 * j + 2], 0xee);
    quad[4 * j + 2] = _mm256_shuffle_ps(pair[4 * j + 1], pair[4 * j + 3], 0x44);
    quad[4 * j + 3] = _mm256_shuffle_ps(pair[4 * j + 1], pair[4 * j + 3], 0xee);
  }
  for (int i = 0; i < 4; ++i) {
    const __m256 low = _mm256_permute2f128_ps(quad[i], quad[4 + i], 0x20);
    const __m256 high = _mm256_permute2f128_ps(quad[i], quad[4 + i], 0x31);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i * to_stride), _mm256_castps_si256(low));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + (4 + i) * to_stride), _mm256_castps_si256(high));
  }
}

void TransposeTile(const uint32_t* from, int64_t from_stride, uint32_t* to, int64_t to_stride) {
  for (int64_t i = 0; i < kTile; i += 8) {
    for (int64_t j = 0; j < kTile; j += 8) {
      TransposeEight(from + i + j * from_stride, from_stride, to + i * to_stride + j, to_stride);
    }
  }
}
#endif

// a runs along contiguous source elements, b along contiguous target elements.
template <typename T>
void TransposePlane(const T* from, T* to, const Dim& a, const Dim& b) {
  for (int64_t b0 = 0; b0 < b.size; b0 += kTile) {
    const int64_t b1 = std::min(b0 + kTile, b.size);
    for (int64_t a0 = 0; a0 < a.size; a0 += kTile) {
      const int64_t a1 = std::min(a0 + kTile, a.size);
      if (std::is_trivially_copyable_v<T> && b1 - b0 == kTile && a1 - a0 == kTile) {
        TransposeTile(from + a0 + b0 * b.from, b.from, to + a0 * a.to + b0, a.to);
      } else {
        for (int64_t i = a0; i < a1; ++i) {
          for (int64_t j = b0; j < b1; ++j) to[i * a.to + j] = from[i + j * b.from];
        }
      }
    }
  }
}

template <typename T>
void CopyPlane(const T* from, T* to, const Dim& a, const Dim& b) {
  if (a.from == 1 && b.to == 1 && b.from != 1 && b.from != 0) return TransposePlane(from, to, a, b);
  for (int64_t i = 0; i < a.size; ++i) CopyLine(from + i * a.from, to + i * a.to, b);
}

// Reorders and merges the dimensions for the fastest iteration. Returns false if the box is empty.
bool Normalize(CopyBox& box) {
  auto& dims = box.dims;
  for (const Dim& d : dims) {
    if (d.size == 0) return false;
  }
  dims.erase(std::remove_if(dims.begin(), dims.end(), [](const Dim& d) { return d.size == 1; }), dims.end());
  const auto outer_first = [](const Dim& x, const Dim& y) { return std::abs(x.to) > std::abs(y.to); };
  // Insertion sort: boxes are small and nearly sorted, and it does not allocate.
  for (size_t i = 1; i < dims.size(); ++i) {
    for (size_t j = i; j > 0 && outer_first(dims[j], dims[j - 1]); --j) std::swap(dims[j], dims[j - 1]);
  }
  size_t n = 0;
  for (const Dim& d : dims) {
    if (n > 0 && dims[n - 1].from == d.from * d.size && dims[n - 1].to == d.to * d.size) {
      dims[n - 1] = {dims[n - 1].size * d.size, d.from, d.to};
    } else {
      dims[n++] = d;
    }
  }
  dims.resize(n);
  if (n >= 2 && dims[n - 1].from != 1) {
    for (size_t j = 0; j + 1 < n; ++j) {
      if (dims[j].from == 1) {
        std::rotate(dims.begin() + j, dims.begin() + j + 1, dims.begin() + n - 1);
        break;
      }
    }
  }
  return true;
}

template <typename T>
void CopyBoxOf(KernelContext& ctx, const CopyBox& box, const T* from, T* to) {
  const auto& dims = box.dims;
  const int n = static_cast<int>(dims.size());
  constexpr int64_t kPiece = kPieceBytes / static_cast<int64_t>(sizeof(T));
  if (n == 0) {
    *to = *from;
    return;
  }
  if (n == 1) {
    ctx.ParallelFor(dims[0].size, kPiece, [&](int64_t begin, int64_t end) {
      const Dim part{end - begin, dims[0].from, dims[0].to};
      CopyLine(from + begin * part.from, to + begin * part.to, part);
    });
    return;
  }
  const Dim &a = dims[n - 2], &b = dims[n - 1];
  // Splits within the last plane, so that even one plane or one long row is shared among threads.
  const int64_t run = b.size > 2 * kPiece ? kPiece : b.size;
  const int64_t runs = (b.size + run - 1) / run;
  const int64_t slab = std::min(a.size, std::max<int64_t>(kTile, kPiece / run / kTile * kTile));
  const int64_t slabs = (a.size + slab - 1) / slab;
  int64_t planes = 1;
  for (int i = 0; i < n - 2; ++i) planes *= dims[i].size;
  const int64_t grain = std::max<int64_t>(1, kPiece / (slab * run));
  ctx.ParallelFor(planes * slabs * runs, grain, [&](int64_t begin, int64_t end) {
    for (int64_t unit = begin; unit < end; ++unit) {
      int64_t rest = unit;
      const int64_t b0 = runs == 1 ? 0 : rest % runs * run;
      if (runs != 1) rest /= runs;
      const int64_t a0 = slabs == 1 ? 0 : rest % slabs * slab;
      if (slabs != 1) rest /= slabs;
      const T* f = from + a0 * a.from + b0 * b.from;
      T* t = to + a0 * a.to + b0 * b.to;
      for (int i = n - 3; i >= 0; --i) {
        const int64_t at = rest % dims[i].size;
        rest /= dims[i].size;
        f += at * dims[i].from;
        t += at * dims[i].to;
      }
      CopyPlane(f, t, Dim{std::min(slab, a.size - a0), a.from, a.to}, Dim{std::min(run, b.size - b0), b.from, b.to});
    }
  });
}

// The device memory that a kernel writes to; null if it writes to host memory.
DeviceBuffer* TargetOnDevice(KernelContext& ctx, const Tensor& to) {
  if (ctx.device()->shares_host_memory()) return nullptr;
  return const_cast<DeviceBuffer*>(DeviceBufferOf(to));
}

}  // namespace

absl::InlinedVector<int64_t, 8> RowMajorStrides(absl::Span<const int64_t> dims) {
  absl::InlinedVector<int64_t, 8> strides(dims.size());
  int64_t stride = 1;
  for (size_t i = dims.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= dims[i];
  }
  return strides;
}

Status StridedCopy(KernelContext& ctx, CopyBox box, const Tensor& from, int64_t from_offset, Tensor* to,
                   int64_t to_offset) {
  if (!Normalize(box)) return absl::OkStatus();
  const DType dtype = to->dtype();
  if (DeviceBuffer* const target = TargetOnDevice(ctx, *to)) {
    const int64_t size = static_cast<int64_t>(SizeOf(dtype));
    return target->CopyBoxFrom(DeviceBufferOf(from), static_cast<const char*>(from.raw_data()) + from_offset * size,
                               static_cast<char*>(to->raw_data()) + to_offset * size, size, box);
  }
  const bool known = DispatchMove(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    CopyBoxOf<T>(ctx, box, static_cast<const T*>(from.raw_data()) + from_offset,
                 static_cast<T*>(to->raw_data()) + to_offset);
  });
  return known ? absl::OkStatus() : InvalidArgument("elements of type ", dtype, " cannot be copied");
}

Status ClearTensor(KernelContext& ctx, Tensor* tensor) {
  if (!IsPlain(tensor->dtype()) || tensor->TotalBytes() == 0) return absl::OkStatus();
  if (DeviceBuffer* const target = TargetOnDevice(ctx, *tensor))
    return target->Clear(tensor->raw_data(), tensor->TotalBytes());
  char* const to = static_cast<char*>(tensor->raw_data());
  ctx.ParallelFor(static_cast<int64_t>(tensor->TotalBytes()), kPieceBytes,
                  [to](int64_t begin, int64_t end) { std::memset(to + begin, 0, static_cast<size_t>(end - begin)); });
  return absl::OkStatus();
}

}  // namespace millrace
