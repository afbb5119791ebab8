#include "millrace/ops/kernels/elementwise.h"

#include <immintrin.h>

#include <atomic>

#include "millrace/ops/kernels/broadcast.h"

namespace millrace {

void Widen(const half* from, float* to, int64_t n) {
  int64_t i = 0;
#ifdef __F16C__
  for (; i + 8 <= n; i += 8) {
    _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i))));
  }
#endif
  for (; i < n; ++i) to[i] = static_cast<float>(from[i]);
}

void Narrow(const float* from, half* to, int64_t n) {
  int64_t i = 0;
#ifdef __F16C__
  for (; i + 8 <= n; i += 8) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i),
                     _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
  }
#endif
  for (; i < n; ++i) to[i] = half(from[i]);
}

void Widen(const bfloat16* from, float* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = static_cast<float>(from[i]);
}

void Narrow(const float* from, bfloat16* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = bfloat16(from[i]);
}

template <typename T>
void MapUnaryBlocks(UnaryLoop loop, size_t out_size, const void* in, void* out, int64_t n) {
  const T* x = static_cast<const T*>(in);
  float block[kBlock];
  for (int64_t i = 0; i < n; i += kBlock) {
    const int64_t m = std::min(kBlock, n - i);
    Widen(x + i, block, m);
    if (out_size == 0) {
      loop(block, block, m);
      Narrow(block, static_cast<T*>(out) + i, m);
    } else {
      loop(block, static_cast<char*>(out) + i * out_size, m);
    }
  }
}
template void MapUnaryBlocks<half>(UnaryLoop, size_t, const void*, void*, int64_t);
template void MapUnaryBlocks<bfloat16>(UnaryLoop, size_t, const void*, void*, int64_t);

template <typename T>
bool MapBinaryBlocks(BinaryLoop loop, size_t out_size, Operands operands, const void* a, const void* b, void* out,
                     int64_t n) {
  float left[kBlock], right[kBlock], result[kBlock];
  const int64_t step_a = operands == Operands::kLeftStands ? 0 : 1;
  const int64_t step_b = operands == Operands::kRightStands ? 0 : 1;
  bool good = true;
  for (int64_t i = 0; i < n; i += kBlock) {
    const int64_t m = std::min(kBlock, n - i);
    if (step_a != 0 || i == 0) Widen(static_cast<const T*>(a) + i * step_a, left, step_a != 0 ? m : 1);
    if (step_b != 0 || i == 0) Widen(static_cast<const T*>(b) + i * step_b, right, step_b != 0 ? m : 1);
    if (out_size == 0) {
      good &= loop(operands, left, right, result, m);
      Narrow(result, static_cast<T*>(out) + i, m);
    } else {
      good &= loop(operands, left, right, static_cast<char*>(out) + i * out_size, m);
    }
  }
  return good;
}
template bool MapBinaryBlocks<half>(BinaryLoop, size_t, Operands, const void*, const void*, void*, int64_t);
template bool MapBinaryBlocks<bfloat16>(BinaryLoop, size_t, Operands, const void*, const void*, void*, int64_t);

Status UnaryKernel::Compute(KernelContext& ctx) {
  const Tensor& x = ctx.input(0);
  const void* in = x.raw_data();
  const int64_t n = x.num_elements();
  const size_t in_size = SizeOf(x.dtype()), out_size = SizeOf(ctx.output_type(0));
  MR_ASSIGN_OR_RETURN(Tensor * y, ctx.ForwardOrAllocateOutput({0}, 0, x.shape()));
  void* out = y->raw_data();
  if (n <= grain_) {
    loop_(in, out, n);
    return absl::OkStatus();
  }
  ctx.ParallelFor(n, grain_, [&](int64_t begin, int64_t end) {
    loop_(static_cast<const char*>(in) + begin * in_size, static_cast<char*>(out) + begin * out_size, end - begin);
  });
  return absl::OkStatus();
}

Status BinaryKernel::Compute(KernelContext& ctx) {
  const Tensor& a = ctx.input(0);
  const Tensor& b = ctx.input(1);
  Operands operands = Operands::kBothMove;
  const Shape* shape = &a.shape();
  if (a.shape() != b.shape()) {
    if (b.num_elements() == 1 && b.rank() <= a.rank()) {
      operands = Operands::kRightStands;
    } else if (a.num_elements() == 1 && a.rank() <= b.rank()) {
      operands = Operands::kLeftStands;
      shape = &b.shape();
    } else {
      return ComputeBroadcast(ctx);
    }
  }
  const int64_t n = shape->num_elements();
  const size_t in_size = SizeOf(a.dtype()), out_size = SizeOf(ctx.output_type(0));
  const char* left = static_cast<const char*>(a.raw_data());
  const char* right = static_cast<const char*>(b.raw_data());
  const size_t left_step = operands == Operands::kLeftStands ? 0 : in_size;
  const size_t right_step = operands == Operands::kRightStands ? 0 : in_size;
  MR_ASSIGN_OR_RETURN(Tensor * y, ctx.ForwardOrAllocateOutput({0, 1}, 0, *shape));
  char* out = static_cast<char*>(y->raw_data());
  if (n <= grain_) {
    if (n == 0 || loop_(operands, left, right, out, n)) return absl::OkStatus();
    return absl::InvalidArgumentError(error_);
  }
  std::atomic<bool> ok{true};
  ctx.ParallelFor(n, grain_, [&](int64_t begin, int64_t end) {
    if (!loop_(operands, left + begin * left_step, right + begin * right_step, out + begin * out_size, end - begin)) {
      ok.store(false, std::memory_order_relaxed);
    }
  });
  if (ok.load(std::memory_order_relaxed)) return absl::OkStatus();
  return absl::InvalidArgumentError(error_);
}

Status BinaryKernel::ComputeBroadcast(KernelContext& ctx) {
  const Tensor& a = ctx.input(0);
  const Tensor& b = ctx.input(1);
  Broadcast walk;
  MR_RETURN_IF_ERROR(walk.Init({&a.shape(), &b.shape()}));
  const size_t in_size = SizeOf(a.dtype()), out_size = SizeOf(ctx.output_type(0));
  const char* left = static_cast<const char*>(a.raw_data());
  const char* right = static_cast<const char*>(b.raw_data());
  MR_ASSIGN_OR_RETURN(Tensor * y, ctx.ForwardOrAllocateOutput({0, 1}, 0, walk.shape()));
  if (walk.num_elements() == 0) return absl::OkStatus();
  char* out = static_cast<char*>(y->raw_data());
  const Operands operands = !walk.moves(0)   ? Operands::kLeftStands
                            : !walk.moves(1) ? Operands::kRightStands
                                             : Operands::kBothMove;
  std::atomic<bool> ok{true};
  ctx.ParallelFor(walk.num_elements(), grain_, [&](int64_t begin, int64_t end) {
    bool piece_ok = true;
    walk.ForEachRun(begin, end, [&](const int64_t* offsets, int64_t at, int64_t n) {
      piece_ok &= loop_(operands, left + offsets[0] * in_size, right + offsets[1] * in_size, out + at * out_size, n);
    });
    if (!piece_ok) ok.store(false, std::memory_order_relaxed);
  });
  if (ok.load(std::memory_order_relaxed)) return absl::OkStatus();
  return absl::InvalidArgumentError(error_);
}

}  // namespace millrace
