// Compiled gathers and updates of rows, and how they are launched.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <initializer_list>

#include "absl/types/span.h"
#include "millrace/base/mutex.h"
#include "millrace/ops/kernels/cuda/cuda_call.h"
#include "millrace/ops/kernels/cuda/rows_program.h"

namespace millrace {

// As the text of programs has it.
struct RowIndex {
  static constexpr int kMostDepth = 12;
  int depth = 1;
  int64_t size[kMostDepth] = {};

  // Of indices that are row numbers of a tensor of `rows` rows.
  static RowIndex Of(int64_t rows);
  // Of coordinates in the first dimensions of a tensor; UNIMPLEMENTED for too many.
  static StatusOr<RowIndex> Of(absl::Span<const int64_t> dims);
  int64_t rows() const;
};
struct GatherForm {
  int64_t outer = 1, axis = 0, count = 0;
  RowIndex index;
};

// With MILLRACE_CHECK_INDICES=1 in the environment: copies the indices to the host, waits for them, and gives
// INVALID_ARGUMENT that names the first one that is out of range. Otherwise indices out of range give zeros or are left
// out, as on TensorFlow's GPUs, and the host never waits. `shape` is that of all indices; the coordinates are its last
// dimension if there are several. Negative ones pass if `negative_is_none`.
Status CheckIndicesIfAsked(const CudaCall& call, const Tensor& indices, const RowIndex& form, bool is_coordinates,
                           bool negative_is_none = false);

// What it checks, of indices in host memory.
Status CheckIndices(const Tensor& host, const RowIndex& form, bool is_coordinates, bool negative_is_none);

// The most bytes, up to 16, that rows of so many bytes at these addresses may be copied in at once.
int WidestElement(int64_t row_bytes, std::initializer_list<const void*> addresses);

// Thread-safe.
class GpuGather {
 public:
  // Compiles it, so that an error comes before the first step.
  Status Init(DType dtype, DType index, int ordinal);
  // `out` has all rows, each of `inner` elements; see GatherForm.
  Status Run(const CudaCall& call, const GatherForm& form, int64_t inner, const Tensor& params, const Tensor& indices,
             Tensor* out);

 private:
  StatusOr<cudaKernel_t> Of(int bytes);

  DType index_ = DType::kInvalid;
  int element_ = 0;  // bytes
  int ordinal_ = 0;
  Mutex mu_;
  std::array<cudaKernel_t, 5> kernels_ ABSL_GUARDED_BY(mu_) = {};  // for 1, 2, 4, 8 and 16 bytes
};

// Sorts indices by the rows that they name. Thread-safe.
class GpuRowOrder {
 public:
  Status Init(DType index, int ordinal);
  // The sorted slots of n indices.
  StatusOr<Tensor> Sort(const CudaCall& call, const RowIndex& form, int64_t n, const Tensor& indices) const;

 private:
  cudaKernel_t slots_ = nullptr, pieces_ = nullptr, merge_ = nullptr;
};

// Combines rows of a tensor with updates, those of one row in the order of their indices. Thread-safe.
class GpuRowUpdate {
 public:
  // `combine` and `rounds` are as RowsProgram::Update takes them.
  Status Init(const std::string& combine, bool rounds, DType dtype, DType index, int ordinal);
  // `updates` are n rows of `columns` elements, or one element for all.
  Status Run(const CudaCall& call, const RowIndex& form, int64_t n, int64_t columns, const Tensor& indices,
             const Tensor& updates, Tensor* values) const;

 private:
  GpuRowOrder order_;
  cudaKernel_t update_ = nullptr;
};

}  // namespace millrace
