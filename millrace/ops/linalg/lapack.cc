#include "millrace/ops/linalg/lapack.h"

#include <algorithm>

// The Fortran symbols, by type letter. Complex numbers of C++ and Fortran have the same layout.
#define MR_DECLARE(letter, T, orgqr)                                                                                 \
  extern "C" {                                                                                                       \
  void letter##getrf_(const int*, const int*, T*, const int*, int*, int*);                                           \
  void letter##getrs_(const char*, const int*, const int*, const T*, const int*, const int*, T*, const int*, int*);  \
  void letter##potrf_(const char*, const int*, T*, const int*, int*);                                                \
  void letter##potrs_(const char*, const int*, const int*, const T*, const int*, T*, const int*, int*);              \
  void letter##geqrf_(const int*, const int*, T*, const int*, T*, T*, const int*, int*);                             \
  void letter##orgqr##_(const int*, const int*, const int*, T*, const int*, const T*, T*, const int*, int*);         \
  void letter##trsm_(const char*, const char*, const char*, const char*, const int*, const int*, const T*, const T*, \
                     const int*, T*, const int*);                                                                    \
  void letter##gemm_(const char*, const char*, const int*, const int*, const int*, const T*, const T*, const int*,   \
                     const T*, const int*, const T*, T*, const int*);                                                \
  }
MR_DECLARE(s, float, orgqr)
MR_DECLARE(d, double, orgqr)
MR_DECLARE(c, std::complex<float>, ungqr)
MR_DECLARE(z, std::complex<double>, ungqr)
#undef MR_DECLARE

extern "C" {
void sgelsy_(const int*, const int*, const int*, float*, const int*, float*, const int*, int*, const float*, int*,
             float*, const int*, int*);
void dgelsy_(const int*, const int*, const int*, double*, const int*, double*, const int*, int*, const double*, int*,
             double*, const int*, int*);
void cgelsy_(const int*, const int*, const int*, std::complex<float>*, const int*, std::complex<float>*, const int*,
             int*, const float*, int*, std::complex<float>*, const int*, float*, int*);
void zgelsy_(const int*, const int*, const int*, std::complex<double>*, const int*, std::complex<double>*, const int*,
             int*, const double*, int*, std::complex<double>*, const int*, double*, int*);
}

namespace millrace::linalg {
namespace {

// The workspace size that a routine requested, which it returns in the first element.
template <typename T>
int WorkSize(const T& asked) {
  return std::max(1, static_cast<int>(std::real(asked)));
}

}  // namespace

#define MR_DEFINE(letter, T, orgqr)                                                                                    \
  int Getrf(int m, int n, T* a, int lda, int* pivots) {                                                                \
    int info = 0;                                                                                                      \
    letter##getrf_(&m, &n, a, &lda, pivots, &info);                                                                    \
    return info;                                                                                                       \
  }                                                                                                                    \
  void Getrs(char transposed, int n, int columns, const T* lu, int lda, const int* pivots, T* b, int ldb) {            \
    int info = 0;                                                                                                      \
    letter##getrs_(&transposed, &n, &columns, lu, &lda, pivots, b, &ldb, &info);                                       \
  }                                                                                                                    \
  int Potrf(char uplo, int n, T* a, int lda) {                                                                         \
    int info = 0;                                                                                                      \
    letter##potrf_(&uplo, &n, a, &lda, &info);                                                                         \
    return info;                                                                                                       \
  }                                                                                                                    \
  void Potrs(char uplo, int n, int columns, const T* factor, int lda, T* b, int ldb) {                                 \
    int info = 0;                                                                                                      \
    letter##potrs_(&uplo, &n, &columns, factor, &lda, b, &ldb, &info);                                                 \
  }                                                                                                                    \
  void Geqrf(int m, int n, T* a, int lda, T* tau) {                                                                    \
    int info = 0, size = -1;                                                                                           \
    T asked;                                                                                                           \
    letter##geqrf_(&m, &n, a, &lda, tau, &asked, &size, &info);                                                        \
    std::vector<T> work(size = WorkSize(asked));                                                                       \
    letter##geqrf_(&m, &n, a, &lda, tau, work.data(), &size, &info);                                                   \
  }                                                                                                                    \
  void Orgqr(int m, int columns, int reflectors, T* a, int lda, const T* tau) {                                        \
    int info = 0, size = -1;                                                                                           \
    T asked;                                                                                                           \
    letter##orgqr##_(&m, &columns, &reflectors, a, &lda, tau, &asked, &size, &info);                                   \
    std::vector<T> work(size = WorkSize(asked));                                                                       \
    letter##orgqr##_(&m, &columns, &reflectors, a, &lda, tau, work.data(), &size, &info);                              \
  }                                                                                                                    \
  void Trsm(char side, char uplo, char transposed, int m, int n, const T* a, int lda, T* b, int ldb) {                 \
    const char diagonal = 'N';                                                                                         \
    const T one(1);                                                                                                    \
    letter##trsm_(&side, &uplo, &transposed, &diagonal, &m, &n, &one, a, &lda, b, &ldb);                               \
  }                                                                                                                    \
  void Gemm(char transposed_a, char transposed_b, int m, int n, int k, const T* a, int lda, const T* b, int ldb, T* c, \
            int ldc) {                                                                                                 \
    const T one(1), zero(0);                                                                                           \
    letter##gemm_(&transposed_a, &transposed_b, &m, &n, &k, &one, a, &lda, b, &ldb, &zero, c, &ldc);                   \
  }
MR_DEFINE(s, float, orgqr)
MR_DEFINE(d, double, orgqr)
MR_DEFINE(c, std::complex<float>, ungqr)
MR_DEFINE(z, std::complex<double>, ungqr)
#undef MR_DEFINE

// Complex routines take real work space too.
#define MR_DEFINE_GELSY(letter, T, Real, ...)                                                            \
  void Gelsy(int m, int n, int columns, T* a, int lda, T* b, int ldb, double rcond) {                    \
    std::vector<int> pivots(n);                                                                          \
    [[maybe_unused]] std::vector<Real> real_work(2 * static_cast<size_t>(n));                            \
    const Real limit = static_cast<Real>(rcond);                                                         \
    int info = 0, rank = 0, size = -1;                                                                   \
    T asked;                                                                                             \
    letter##gelsy_(&m, &n, &columns, a, &lda, b, &ldb, pivots.data(), &limit, &rank, &asked, &size,      \
                   __VA_ARGS__& info);                                                                   \
    std::vector<T> work(size = WorkSize(asked));                                                         \
    letter##gelsy_(&m, &n, &columns, a, &lda, b, &ldb, pivots.data(), &limit, &rank, work.data(), &size, \
                   __VA_ARGS__& info);                                                                   \
  }
#define MR_COMMA ,
MR_DEFINE_GELSY(s, float, float)
MR_DEFINE_GELSY(d, double, double)
MR_DEFINE_GELSY(c, std::complex<float>, float, real_work.data() MR_COMMA)
MR_DEFINE_GELSY(z, std::complex<double>, double, real_work.data() MR_COMMA)
#undef MR_COMMA
#undef MR_DEFINE_GELSY

}  // namespace millrace::linalg
