// One GPU of this process: its streams, its memory and the copies in and out.
#pragma once

#include <cublas_v2.h>

#include <deque>
#include <memory>
#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "millrace/base/mutex.h"
#include "millrace/base/thread_pool.h"
#include "millrace/device/cuda/completions.h"
#include "millrace/device/cuda/gpu_memory.h"
#include "millrace/device/cuda/handle.h"
#include "millrace/device/cuda/pinned_memory.h"

namespace millrace {

// Kernels go to the compute stream; copies in and out have a stream each, and events order the three on the
// device. The host waits for nothing but a value that it asked for, and for that a thread of Completions.
//
// All sessions share it, so that work on a variable they share is in one order. Thread-safe.
class Gpu {
 public:
  // Made at first use; lives as long as the process. `name` is for messages.
  static StatusOr<Gpu*> Get(int ordinal);

  const std::string& name() const { return name_; }  // "GPU:0 (NVIDIA H200)"
  int ordinal() const { return ordinal_; }
  cudaStream_t compute() const { return compute_.get(); }
  GpuAllocator* allocator() { return memory_.get(); }
  PinnedAllocator* pinned() { return &pinned_; }

  // Makes this GPU the calling thread's.
  Status Use() const;

  // A tensor here with the contents of `host`. Returns when the copy is enqueued and `host` read (or, when it
  // lies in pinned memory, kept until it is); kernels wait for the contents on the device.
  StatusOr<Tensor> CopyIn(const Tensor& host);
  // A tensor in pinned host memory with the contents that `here` has after what is enqueued now. `done` gets
  // it when it is there. `here` must stay as it is until then.
  void CopyOut(const Tensor& here, absl::AnyInvocable<void(StatusOr<Tensor>)> done);

  // Calls `done` after everything that is on the compute stream now.
  void WhenDone(Completions::Done done);
  Status Synchronize();

  // Calls fn with the cuBLAS handle of the compute stream, one caller at a time.
  Status WithCublas(absl::FunctionRef<Status(cublasHandle_t)> fn);

 private:
  using Cublas = CudaHandle<cublasHandle_t, cublasDestroy>;

  Gpu(int ordinal, std::string name);
  Status Init();
  StatusOr<CudaEvent> Record(cudaStream_t stream) const;
  Status Stage(const Tensor& host, void* to, std::vector<RefPtr<Buffer>>* sources);
  // Lets go of the host memory of copies in that have ended.
  void Reap();

  // Host memory that a copy in reads until `ended`.
  struct Loan {
    std::shared_ptr<const CudaEvent> ended;
    std::vector<RefPtr<Buffer>> sources;
  };

  const int ordinal_;
  const std::string name_;
  CudaStreamHandle compute_, copy_in_, copy_out_;
  std::unique_ptr<GpuAllocator> memory_;
  PinnedAllocator pinned_;
  ThreadPool done_threads_, stage_threads_;
  Completions computed_, copied_out_;

  Mutex loans_mu_;
  std::deque<Loan> loans_ ABSL_GUARDED_BY(loans_mu_);

  Mutex cublas_mu_;
  Cublas cublas_ ABSL_GUARDED_BY(cublas_mu_);
  RefPtr<Buffer> cublas_workspace_ ABSL_GUARDED_BY(cublas_mu_);
};

// cuBLAS's codes as CudaStatus has CUDA's.
Status CublasStatus(cublasStatus_t code, absl::string_view call, absl::string_view device);

}  // namespace millrace
