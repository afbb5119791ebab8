#include "millrace/ops/kernels/matrix_product.h"

#include <Eigen/Core>

#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

// Elements that one thread converts at a time.
constexpr int64_t kConvertGrain = 16384;
// The number of multiplications that are worth another thread.
constexpr int64_t kLoopGrain = 1 << 18;
constexpr double kFloatGrainFlops = 2e6;

using ProductTypes =
    Types<float, double, half, bfloat16, int16_t, int32_t, int64_t, std::complex<float>, std::complex<double>>;

template <typename T>
T Conjugate(T x) {
  return x;
}
template <typename T>
std::complex<T> Conjugate(std::complex<T> x) {
  return std::conj(x);
}

// y += factor * x. Integers wrap around.
template <typename T>
void AddScaled(T factor, const T* x, T* y, int64_t n) {
  if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<std::conditional_t<sizeof(T) < 4, int32_t, T>>;
    for (int64_t i = 0; i < n; ++i) {
      y[i] = static_cast<T>(static_cast<U>(y[i]) + static_cast<U>(factor) * static_cast<U>(x[i]));
    }
  } else if constexpr (std::is_floating_point_v<T>) {
    for (int64_t i = 0; i < n; ++i) y[i] += factor * x[i];
  } else {
    // Written out, because std::complex multiplication checks for infinities and does not vectorise.
    const auto re = factor.real(), im = factor.imag();
    for (int64_t i = 0; i < n; ++i) {
      y[i] =
          T(y[i].real() + (re * x[i].real() - im * x[i].imag()), y[i].imag() + (re * x[i].imag() + im * x[i].real()));
    }
  }
}

// Transposes a [rows, cols] matrix, optionally conjugated.
template <typename T>
void TransposeInto(const T* x, int64_t rows, int64_t cols, bool conjugate, T* y) {
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < cols; ++j) {
      y[j * rows + i] = conjugate ? Conjugate(x[i * cols + j]) : x[i * cols + j];
    }
  }
}

// Rows [begin, end) of one product; `b` is row-major [k, n].
template <typename T>
void MultiplyRows(const GemmShape& s, const T* a, bool conjugate_a, const T* b, T* c, int64_t begin, int64_t end) {
  const int64_t row_step = s.transpose_a ? 1 : s.k, col_step = s.transpose_a ? s.m : 1;
  for (int64_t i = begin; i < end; ++i) {
    T* row = c + i * s.n;
    std::fill(row, row + s.n, T(0));
    for (int64_t p = 0; p < s.k; ++p) {
      const T factor = a[i * row_step + p * col_step];
      AddScaled(conjugate_a ? Conjugate(factor) : factor, b + p * s.n, row, s.n);
    }
  }
}

template <>
void MultiplyRows<double>(const GemmShape& s, const double* a, bool, const double* b, double* c, int64_t begin,
                          int64_t end) {
  using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  const Eigen::Map<const Matrix> right(b, s.k, s.n);
  Eigen::Map<Matrix> product(c + begin * s.n, end - begin, s.n);
  if (s.transpose_a) {
    const Eigen::Map<const Matrix, 0, Eigen::OuterStride<>> left(a + begin, s.k, end - begin,
                                                                 Eigen::OuterStride<>(s.m));
    product.noalias() = left.transpose() * right;
  } else {
    const Eigen::Map<const Matrix> left(a + begin * s.k, end - begin, s.k);
    product.noalias() = left * right;
  }
}

template <typename T>
Status LoopProducts(KernelContext& ctx, const GemmShape& s, absl::Span<const MatrixPair> pairs, const Tensor& a,
                    const Tensor& b, Tensor* c, const ProductOptions& options) {
  const T* right = b.data<T>();
  Tensor packed;
  if (s.transpose_b || options.conjugate_b) {
    MR_ASSIGN_OR_RETURN(packed, ctx.AllocateTemp(b.dtype(), b.shape()));
    T* out = packed.data<T>();
    const int64_t size = s.k * s.n, count = size == 0 ? 0 : b.num_elements() / size;
    ctx.ParallelFor(count, std::max<int64_t>(1, kConvertGrain / std::max<int64_t>(size, 1)),
                    [&](int64_t begin, int64_t end) {
                      for (int64_t i = begin; i < end; ++i) {
                        if (s.transpose_b) {
                          TransposeInto(right + i * size, s.n, s.k, options.conjugate_b, out + i * size);
                        } else {
                          TransposeInto(right + i * size, 1, size, true, out + i * size);
                        }
                      }
                    });
    right = out;
  }
  const T* left = a.data<T>();
  T* product = c->data<T>();
  const int64_t row_work = std::max<int64_t>(1, s.k * s.n);
  const int64_t rows_per_piece = std::max<int64_t>(1, kLoopGrain / row_work);
  if (s.m == 0 || s.n == 0) return absl::OkStatus();
  // A piece is either a part of one large product or several whole small ones.
  if (rows_per_piece >= s.m) {
    ctx.ParallelFor(pairs.size(), rows_per_piece / s.m, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        MultiplyRows(s, left + pairs[i].a * s.m * s.k, options.conjugate_a, right + pairs[i].b * s.k * s.n,
                     product + i * s.m * s.n, 0, s.m);
      }
    });
    return absl::OkStatus();
  }
  for (size_t i = 0; i < pairs.size(); ++i) {
    ctx.ParallelFor(s.m, rows_per_piece, [&](int64_t begin, int64_t end) {
      MultiplyRows(s, left + pairs[i].a * s.m * s.k, options.conjugate_a, right + pairs[i].b * s.k * s.n,
                   product + i * s.m * s.n, begin, end);
    });
  }
  return absl::OkStatus();
}

Status FloatProducts(KernelContext& ctx, const GemmShape& s, absl::Span<const MatrixPair> pairs, const float* a,
                     const float* b, float* c) {
  const Gemm* gemm = Gemm::Get(s);
  if (pairs.size() == 1) {
    if (gemm->runs_long()) ctx.HandOver();
    return gemm->Run(ctx.device()->intra_op_pool(), a + pairs[0].a * s.m * s.k, b + pairs[0].b * s.k * s.n, c);
  }
  const int64_t tiles = gemm->num_tiles();
  const int64_t grain =
      std::max<int64_t>(1, static_cast<int64_t>(kFloatGrainFlops / std::max(gemm->tile_flops(), 1.0)));
  onednn::FirstError error;
  ctx.ParallelFor(static_cast<int64_t>(pairs.size()) * tiles, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const MatrixPair& pair = pairs[i / tiles];
      error.Update(gemm->RunTile(i % tiles, a + pair.a * s.m * s.k, b + pair.b * s.k * s.n, c + i / tiles * s.m * s.n,
                                 [](const GemmTile&) {}));
    }
  });
  return error.status();
}

template <typename From, typename To>
void ConvertAll(KernelContext& ctx, const From* x, To* y, int64_t n) {
  ctx.ParallelFor(n, kConvertGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) y[i] = static_cast<To>(x[i]);
  });
}

}  // namespace

StatusOr<GemmShape> ShapeOfProduct(const Tensor& a, const Tensor& b, bool transpose_a, bool transpose_b) {
  if (a.rank() != 2 || b.rank() != 2) {
    return InvalidArgument("a matrix product needs two matrices, but a has shape ", a.shape().ToString(), " and b ",
                           b.shape().ToString());
  }
  const GemmShape shape{.m = a.dim(transpose_a ? 1 : 0),
                        .n = b.dim(transpose_b ? 0 : 1),
                        .k = a.dim(transpose_a ? 0 : 1),
                        .transpose_a = transpose_a,
                        .transpose_b = transpose_b};
  if (shape.k != b.dim(transpose_b ? 1 : 0)) {
    return InvalidArgument("inner dimensions of a matrix product differ: a has shape ", a.shape().ToString(),
                           transpose_a ? " (transposed)" : "", ", b ", b.shape().ToString(),
                           transpose_b ? " (transposed)" : "");
  }
  return shape;
}

bool HasMatrixProduct(DType dtype) {
  return DispatchType(ProductTypes{}, dtype, [](auto) {});
}

StatusOr<Tensor> AsFloat(KernelContext& ctx, const Tensor& x) {
  if (x.dtype() == DType::kFloat) return x;
  MR_ASSIGN_OR_RETURN(Tensor y, ctx.AllocateTemp(DType::kFloat, x.shape()));
  if (x.dtype() == DType::kHalf) {
    ConvertAll(ctx, x.data<half>(), y.data<float>(), x.num_elements());
  } else {
    ConvertAll(ctx, x.data<bfloat16>(), y.data<float>(), x.num_elements());
  }
  return y;
}

void FromFloat(KernelContext& ctx, const Tensor& x, Tensor* y) {
  if (y->dtype() == DType::kHalf) {
    ConvertAll(ctx, x.data<float>(), y->data<half>(), x.num_elements());
  } else {
    ConvertAll(ctx, x.data<float>(), y->data<bfloat16>(), x.num_elements());
  }
}

Status MatrixProducts(KernelContext& ctx, const GemmShape& shape, absl::Span<const MatrixPair> pairs, const Tensor& a,
                      const Tensor& b, Tensor* c, const ProductOptions& options) {
  switch (c->dtype()) {
    case DType::kFloat:
      return FloatProducts(ctx, shape, pairs, a.data<float>(), b.data<float>(), c->data<float>());
    case DType::kHalf:
    case DType::kBFloat16: {
      MR_ASSIGN_OR_RETURN(const Tensor left, AsFloat(ctx, a));
      MR_ASSIGN_OR_RETURN(const Tensor right, AsFloat(ctx, b));
      MR_ASSIGN_OR_RETURN(Tensor product, ctx.AllocateTemp(DType::kFloat, c->shape()));
      MR_RETURN_IF_ERROR(
          FloatProducts(ctx, shape, pairs, left.data<float>(), right.data<float>(), product.data<float>()));
      FromFloat(ctx, product, c);
      return absl::OkStatus();
    }
    case DType::kDouble:
      return LoopProducts<double>(ctx, shape, pairs, a, b, c, options);
    case DType::kInt16:
      return LoopProducts<int16_t>(ctx, shape, pairs, a, b, c, options);
    case DType::kInt32:
      return LoopProducts<int32_t>(ctx, shape, pairs, a, b, c, options);
    case DType::kInt64:
      return LoopProducts<int64_t>(ctx, shape, pairs, a, b, c, options);
    case DType::kComplex64:
      return LoopProducts<std::complex<float>>(ctx, shape, pairs, a, b, c, options);
    case DType::kComplex128:
      return LoopProducts<std::complex<double>>(ctx, shape, pairs, a, b, c, options);
    default:
      return Unimplemented("no matrix product for ", DTypeName(c->dtype()));
  }
}

}  // namespace millrace
