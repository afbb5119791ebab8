// One GPU of this process: its streams, its memory and the copies to and from the host.
#pragma once

#include <deque>
#include <memory>
#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "millrace/base/mutex.h"
#include "millrace/base/thread_pool.h"
#include "millrace/device/cuda/completions.h"
#include "millrace/device/cuda/cublas.h"
#include "millrace/device/cuda/cudnn.h"
#include "millrace/device/cuda/gpu_memory.h"
#include "millrace/device/cuda/handle.h"
#include "millrace/device/cuda/pinned_memory.h"
#include "millrace/device/device_health.h"
#include "millrace/device/gpu_layout.h"

namespace millrace {

// Kernels run on the compute stream; copies in and out have a stream each, and events order the three on the device.
// The host waits only for values that it fetches, on a thread of Completions.
//
// Shared by all sessions, so that their work on shared variables has one order. Several of them may be on one card
// (virtual devices), each with streams and memory of its own. Thread-safe.
class Gpu {
 public:
  // The device of this number, which is that part of a card. Created on first use; never destroyed.
  static StatusOr<Gpu*> Get(int number, const GpuPlace& place);

  const std::string& name() const { return name_; }  // "GPU:0 (NVIDIA H200)"
  // "NVIDIA H200"
  std::string model() const { return name_.substr(name_.find('(') + 1, name_.rfind(')') - name_.find('(') - 1); }
  int ordinal() const { return place_.card; }  // for CUDA
  // The bytes that it may use; 0: those of the card.
  int64_t memory_limit() const { return place_.memory_limit; }
  cudaStream_t compute() const { return compute_.get(); }
  GpuAllocator* allocator() { return memory_.get(); }
  PinnedAllocator* pinned() { return &pinned_; }
  const DeviceHealth& health() const { return health_; }

  // Makes this GPU the calling thread's current device.
  Status Use() const;

  // Returns a tensor on this GPU with the contents of `host`, as soon as the copy is enqueued and `host` has been read
  // or, if it is in pinned memory, is referenced until it has been. Kernels wait for the copy on the device.
  StatusOr<Tensor> CopyIn(const Tensor& host);
  // Copies `here`, as of the work enqueued so far, to pinned host memory and passes that tensor to `done`. `here` must
  // not change until then.
  void CopyOut(const Tensor& here, absl::AnyInvocable<void(StatusOr<Tensor>)> done);

  // Calls `done` after everything enqueued on the compute stream so far.
  void WhenDone(Completions::Done done);
  Status Synchronize();

  // Calls fn with cuBLAS and the compute stream's handle, one caller at a time.
  Status WithCublas(absl::FunctionRef<Status(const Cublas&, cublasHandle_t)> fn);
  // The same with cuDNN.
  Status WithCudnn(absl::FunctionRef<Status(const Cudnn&, cudnnHandle_t)> fn);

 private:
  Gpu(const GpuPlace& place, std::string name);
  Status Init();
  StatusOr<CudaEvent> Record(cudaStream_t stream) const;
  Status Stage(const Tensor& host, void* to, std::vector<RefPtr<Buffer>>* sources);
  // Passes a status on; an error that has broken the card for this process ends its health.
  Status Noted(Status status);
  // Releases the host memory of finished copies in.
  void Reap();

  // Host memory that a copy in reads until the event `ended`.
  struct Loan {
    std::shared_ptr<const CudaEvent> ended;
    std::vector<RefPtr<Buffer>> sources;
  };

  const GpuPlace place_;
  const std::string name_;
  DeviceHealth health_{name_};
  CudaStreamHandle compute_, copy_in_, copy_out_;
  std::unique_ptr<GpuAllocator> memory_;
  PinnedAllocator pinned_;
  ThreadPool done_threads_, stage_threads_;
  Completions computed_, copied_out_;

  Mutex loans_mu_;
  std::deque<Loan> loans_ ABSL_GUARDED_BY(loans_mu_);

  Mutex cublas_mu_;
  cublasHandle_t cublas_handle_ ABSL_GUARDED_BY(cublas_mu_) = nullptr;
  RefPtr<Buffer> cublas_workspace_ ABSL_GUARDED_BY(cublas_mu_);
  Mutex cudnn_mu_;
  cudnnHandle_t cudnn_handle_ ABSL_GUARDED_BY(cudnn_mu_) = nullptr;
};

}  // namespace millrace
