#include "millrace/ops/kernels/cuda/gpu_rows.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/notification.h"
#include "millrace/ops/kernels/cuda/compiled_kernels.h"
#include "millrace/ops/kernels/index_input.h"

namespace millrace {
namespace {

bool ChecksIndices() {
  static const bool checks = [] {
    const char* const value = std::getenv("MILLRACE_CHECK_INDICES");
    return value != nullptr && *value != '\0' && absl::string_view(value) != "0";
  }();
  return checks;
}

int64_t IndexOf(const Tensor& indices, int64_t i) {
  switch (indices.dtype()) {
    case DType::kUInt8:
      return indices.data<uint8_t>()[i];
    case DType::kInt8:
      return indices.data<int8_t>()[i];
    case DType::kUInt16:
      return indices.data<uint16_t>()[i];
    default:
      return IntAt(indices, i);
  }
}

StatusOr<Tensor> OnHost(const CudaCall& call, const Tensor& tensor) {
  absl::Notification done;
  StatusOr<Tensor> host = Internal("no copy");
  call.gpu()->CopyOut(tensor, [&](StatusOr<Tensor> copy) {
    host = std::move(copy);
    done.Notify();
  });
  done.WaitForNotification();
  return host;
}

// "[1,2]" for a position in row-major order.
std::string Position(absl::Span<const int64_t> dims, int64_t i) {
  std::vector<int64_t> at(dims.size());
  for (size_t d = dims.size(); d-- > 0;) {
    at[d] = i % dims[d];
    i /= dims[d];
  }
  return absl::StrCat("indices[", absl::StrJoin(at, ","), "]");
}

}  // namespace

RowIndex RowIndex::Of(int64_t rows) {
  RowIndex form;
  form.size[0] = rows;
  return form;
}

StatusOr<RowIndex> RowIndex::Of(absl::Span<const int64_t> dims) {
  if (dims.size() > static_cast<size_t>(kMostDepth)) {
    return Unimplemented("indices of ", dims.size(), " coordinates on a GPU, which takes at most ", kMostDepth);
  }
  RowIndex form;
  form.depth = static_cast<int>(dims.size());
  std::copy(dims.begin(), dims.end(), form.size);
  return form;
}

int64_t RowIndex::rows() const {
  int64_t rows = 1;
  for (int d = 0; d < depth; ++d) rows *= size[d];
  return rows;
}

Status CheckIndicesIfAsked(const CudaCall& call, const Tensor& indices, const RowIndex& form, bool is_coordinates,
                           bool negative_is_none) {
  if (!ChecksIndices()) return absl::OkStatus();
  MR_ASSIGN_OR_RETURN(const Tensor host, OnHost(call, indices));
  return CheckIndices(host, form, is_coordinates, negative_is_none);
}

Status CheckIndices(const Tensor& host, const RowIndex& form, bool is_coordinates, bool negative_is_none) {
  absl::Span<const int64_t> dims = host.shape().dims();
  if (is_coordinates) dims.remove_suffix(1);
  const int64_t n = form.depth == 0 ? 0 : host.num_elements() / form.depth;
  for (int64_t i = 0; i < n; ++i) {
    bool bad = false;
    std::vector<int64_t> at;
    for (int d = 0; d < form.depth; ++d) {
      at.push_back(IndexOf(host, i * form.depth + d));
      bad |= at[d] >= form.size[d] || (at[d] < 0 && !negative_is_none);
    }
    if (!bad) continue;
    if (!is_coordinates) return InvalidArgument(Position(dims, i), " = ", at[0], " is not in [0, ", form.size[0], ")");
    return InvalidArgument(Position(dims, i), " = [", absl::StrJoin(at, ", "), "] does not index into [",
                           absl::StrJoin(absl::MakeConstSpan(form.size, form.depth), ","), "]");
  }
  return absl::OkStatus();
}

int WidestElement(int64_t row_bytes, std::initializer_list<const void*> addresses) {
  uintptr_t bits = 16 | static_cast<uintptr_t>(row_bytes);
  for (const void* address : addresses) bits |= reinterpret_cast<uintptr_t>(address);
  return static_cast<int>(bits & (~bits + 1));
}

Status GpuGather::Init(DType dtype, DType index, int ordinal) {
  index_ = index;
  element_ = static_cast<int>(SizeOf(dtype));
  ordinal_ = ordinal;
  return Of(element_).status();
}

StatusOr<cudaKernel_t> GpuGather::Of(int bytes) {
  MutexLock lock(&mu_);
  cudaKernel_t& kernel = kernels_[__builtin_ctz(static_cast<unsigned>(bytes))];
  if (kernel == nullptr) {
    MR_ASSIGN_OR_RETURN(kernel, CompiledKernel(RowsProgram::Gather(bytes, index_), RowsProgram::kGather, ordinal_));
  }
  return kernel;
}

Status GpuGather::Run(const CudaCall& call, const GatherForm& form, int64_t inner, const Tensor& params,
                      const Tensor& indices, Tensor* out) {
  if (out->num_elements() == 0) return absl::OkStatus();
  MR_ASSIGN_OR_RETURN(const void* from, call.Memory(params));
  MR_ASSIGN_OR_RETURN(const void* at, call.Memory(indices));
  void* to = out->raw_data();
  const int bytes = WidestElement(inner * element_, {from, to});
  int64_t rows = out->num_elements() / inner, columns = inner * element_ / bytes;
  MR_ASSIGN_OR_RETURN(const cudaKernel_t kernel, Of(bytes));
  GatherForm argument = form;
  std::vector<void*> arguments = {&argument, &rows, &columns, &from, &at, &to};
  return call.LaunchOverRows("a gather", kernel, rows, columns, arguments);
}

Status GpuRowOrder::Init(DType index, int ordinal) {
  MR_ASSIGN_OR_RETURN(slots_, CompiledKernel(RowsProgram::Slots(index), RowsProgram::kSlots, ordinal));
  MR_ASSIGN_OR_RETURN(pieces_, CompiledKernel(RowsProgram::Sort(), RowsProgram::kSortPieces, ordinal));
  MR_ASSIGN_OR_RETURN(merge_, CompiledKernel(RowsProgram::Sort(), RowsProgram::kMergeRuns, ordinal));
  return absl::OkStatus();
}

StatusOr<Tensor> GpuRowOrder::Sort(const CudaCall& call, const RowIndex& form, int64_t n, const Tensor& indices) const {
  // A slot has 32 bits for each.
  if (n >= UINT32_MAX || form.rows() >= UINT32_MAX) {
    return Unimplemented("an update of ", n, " of ", form.rows(), " rows on a GPU, which has at most ", UINT32_MAX - 1);
  }
  MR_ASSIGN_OR_RETURN(const void* from, call.Memory(indices));
  MR_ASSIGN_OR_RETURN(Tensor slots, Tensor::Make(DType::kUInt64, Shape({n}), call.gpu()->allocator()));
  void* to = slots.raw_data();
  RowIndex argument = form;
  std::vector<void*> arguments = {&n, &argument, &from, &to};
  MR_RETURN_IF_ERROR(call.LaunchOverElements("rows of indices", slots_, n, arguments));
  constexpr int64_t kBlock = RowsProgram::kSortedByBlock;
  arguments = {&n, &to};
  MR_RETURN_IF_ERROR(call.Launch("sorting indices", pieces_, dim3(static_cast<unsigned>((n + kBlock - 1) / kBlock)),
                                 dim3(kBlock), arguments));
  if (n <= kBlock) return slots;
  MR_ASSIGN_OR_RETURN(Tensor other, Tensor::Make(DType::kUInt64, Shape({n}), call.gpu()->allocator()));
  for (int64_t run = kBlock; run < n; run *= 2) {
    void *in = slots.raw_data(), *out = other.raw_data();
    arguments = {&n, &run, &in, &out};
    MR_RETURN_IF_ERROR(call.LaunchOverElements("sorting indices", merge_, n, arguments));
    std::swap(slots, other);
  }
  return slots;
}

Status GpuRowUpdate::Init(const std::string& combine, bool rounds, DType dtype, DType index, int ordinal) {
  MR_RETURN_IF_ERROR(order_.Init(index, ordinal));
  MR_ASSIGN_OR_RETURN(update_,
                      CompiledKernel(RowsProgram::Update(combine, rounds, dtype), RowsProgram::kUpdate, ordinal));
  return absl::OkStatus();
}

Status GpuRowUpdate::Run(const CudaCall& call, const RowIndex& form, int64_t n, int64_t columns, const Tensor& indices,
                         const Tensor& updates, Tensor* values) const {
  if (n == 0 || columns == 0) return absl::OkStatus();
  MR_ASSIGN_OR_RETURN(const Tensor slots, order_.Sort(call, form, n, indices));
  MR_ASSIGN_OR_RETURN(const void* from, call.Memory(updates));
  MR_ASSIGN_OR_RETURN(void* to, call.Memory(*values));
  const void* order = slots.raw_data();
  int moves = updates.num_elements() == n * columns ? 1 : 0;
  std::vector<void*> arguments = {&n, &columns, &order, &from, &moves, &to};
  return call.LaunchOverRows("an update of rows", update_, n, columns, arguments);
}

}  // namespace millrace
