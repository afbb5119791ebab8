#include "millrace/device/cuda/gpu.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"

namespace millrace {
namespace {

// Threads that wait for events and continue the steps that depend on them.
constexpr int kDoneThreads = 4;
// Threads that fill pinned memory; a single one is slower than the bus.
constexpr int kStageThreads = 6;
// A large copy goes through pinned memory in pieces, so that the transfer of one overlaps with filling the next.
constexpr size_t kPiece = size_t{16} << 20;
// Bytes that one thread fills at a time.
constexpr int64_t kStageGrain = int64_t{256} << 10;
// The workspace size that cuBLAS needs for its fastest algorithms on this GPU generation.
constexpr size_t kCublasWorkspace = size_t{32} << 20;

}  // namespace

Gpu::Gpu(const GpuPlace& place, std::string name)
    : place_(place),
      name_(std::move(name)),
      pinned_(place.card),
      done_threads_("cuda_done", kDoneThreads),
      stage_threads_("cuda_stage", kStageThreads),
      computed_(name_, place.card, &done_threads_),
      copied_out_(name_, place.card, &done_threads_) {}

StatusOr<Gpu*> Gpu::Get(int number, const GpuPlace& place) {
  // Never destroyed: tensors and variables may outlive everything else.
  static Mutex* const mu = new Mutex;
  static auto* const gpus = new std::map<int, Gpu*>;
  MutexLock lock(mu);
  Gpu*& gpu = (*gpus)[number];
  if (gpu != nullptr) return gpu;
  const std::string device = absl::StrCat("GPU:", number);
  cudaDeviceProp props;
  MR_RETURN_IF_CUDA_ERROR(device, cudaGetDeviceProperties(&props, place.card));
  std::unique_ptr<Gpu> made(new Gpu(place, absl::StrCat(device, " (", props.name, ")")));
  MR_RETURN_IF_ERROR(made->Init());
  return gpu = made.release();
}

Status Gpu::Init() {
  MR_RETURN_IF_ERROR(Use());
  for (CudaStreamHandle* stream : {&compute_, &copy_in_, &copy_out_}) {
    MR_RETURN_IF_CUDA_ERROR(name_, cudaStreamCreateWithPriority(stream->out(), cudaStreamNonBlocking, place_.priority));
  }
  memory_ = std::make_unique<GpuAllocator>(name_, place_, compute_.get());
  return memory_->Init();
}

Status Gpu::Use() const {
  MR_RETURN_IF_CUDA_ERROR(name_, cudaSetDevice(place_.card));
  return absl::OkStatus();
}

StatusOr<CudaEvent> Gpu::Record(cudaStream_t stream) const {
  CudaEvent event;
  MR_RETURN_IF_CUDA_ERROR(name_, cudaEventCreateWithFlags(event.out(), cudaEventDisableTiming | cudaEventBlockingSync));
  MR_RETURN_IF_CUDA_ERROR(name_, cudaEventRecord(event.get(), stream));
  return event;
}

Status Gpu::Stage(const Tensor& host, void* to, std::vector<RefPtr<Buffer>>* sources) {
  const char* const from = static_cast<const char*>(host.raw_data());
  const size_t bytes = host.TotalBytes();
  if (bytes == 0) return absl::OkStatus();
  if (PinnedAllocator::Owns(*host.buffer())) {
    MR_RETURN_IF_CUDA_ERROR(name_, cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, copy_in_.get()));
    sources->push_back(host.buffer());
    return absl::OkStatus();
  }
  for (size_t at = 0; at < bytes; at += kPiece) {
    const size_t n = std::min(kPiece, bytes - at);
    RefPtr<Buffer> piece = pinned_.Allocate(n);
    if (!piece) return ResourceExhausted("no ", pinned_.name(), " for a copy of ", bytes, " bytes to ", name_);
    char* const staged = static_cast<char*>(piece->data());
    stage_threads_.ParallelFor(static_cast<int64_t>(n), kStageGrain, [&](int64_t begin, int64_t end) {
      std::memcpy(staged + begin, from + at + begin, end - begin);
    });
    MR_RETURN_IF_CUDA_ERROR(
        name_, cudaMemcpyAsync(static_cast<char*>(to) + at, staged, n, cudaMemcpyHostToDevice, copy_in_.get()));
    sources->push_back(std::move(piece));
  }
  return absl::OkStatus();
}

void Gpu::Reap() {
  // Destroyed outside the lock.
  std::vector<Loan> ended;
  MutexLock lock(&loans_mu_);
  while (!loans_.empty() && cudaEventQuery(loans_.front().ended->get()) != cudaErrorNotReady) {
    ended.push_back(std::move(loans_.front()));
    loans_.pop_front();
  }
}

StatusOr<Tensor> Gpu::CopyIn(const Tensor& host) {
  if (!IsPlain(host.dtype())) {
    return Unimplemented("tensors of type ", host.dtype(), " cannot be in the memory of ", name_);
  }
  if (IsDeviceMemory(host))
    return Internal("a copy to ", name_, " was requested for a tensor that is not in host memory");
  MR_RETURN_IF_ERROR(Use());
  Reap();
  RefPtr<GpuBuffer> buffer = memory_->AllocateOn(copy_in_.get(), host.TotalBytes());
  if (!buffer) {
    return ResourceExhausted("no memory for a tensor of ", host.dtype(), host.shape().ToString(), " (",
                             host.TotalBytes(), " bytes) on ", name_, memory_->Shortage(host.TotalBytes()));
  }
  Loan loan;
  const Status staged = Stage(host, buffer->data(), &loan.sources);
  // Also after an error: some pieces may be in flight.
  MR_ASSIGN_OR_RETURN(CudaEvent event, Record(copy_in_.get()));
  loan.ended = std::make_shared<const CudaEvent>(std::move(event));
  buffer->FilledBy(loan.ended);
  {
    MutexLock lock(&loans_mu_);
    loans_.push_back(std::move(loan));
  }
  MR_RETURN_IF_ERROR(staged);
  return Tensor(host.dtype(), host.shape(), std::move(buffer));
}

void Gpu::CopyOut(const Tensor& here, absl::AnyInvocable<void(StatusOr<Tensor>)> done) {
  Tensor host;
  CudaEvent ended;
  const Status status = [&]() -> Status {
    const GpuBuffer* const buffer = GpuBufferOf(here);
    if (buffer == nullptr || buffer->allocator() != memory_.get()) {
      return Internal("a copy from ", name_, " was requested for a tensor that is not in its memory");
    }
    MR_RETURN_IF_ERROR(Use());
    MR_RETURN_IF_ERROR(Tensor::MakeInto(here.dtype(), here.shape(), &pinned_, &host));
    MR_RETURN_IF_ERROR(buffer->AwaitOn(copy_out_.get()));
    MR_ASSIGN_OR_RETURN(const CudaEvent computed, Record(compute_.get()));
    MR_RETURN_IF_CUDA_ERROR(name_, cudaStreamWaitEvent(copy_out_.get(), computed.get()));
    MR_RETURN_IF_CUDA_ERROR(name_, cudaMemcpyAsync(host.raw_data(), here.raw_data(), here.TotalBytes(),
                                                   cudaMemcpyDeviceToHost, copy_out_.get()));
    MR_ASSIGN_OR_RETURN(ended, Record(copy_out_.get()));
    return absl::OkStatus();
  }();
  if (!status.ok()) return done(status);
  copied_out_.Add(std::move(ended), [this, host = std::move(host), done = std::move(done)](Status s) mutable {
    s = Noted(std::move(s));
    if (!s.ok()) return done(std::move(s));
    done(std::move(host));
  });
}

void Gpu::WhenDone(Completions::Done done) {
  StatusOr<CudaEvent> event = Record(compute_.get());
  if (!event.ok()) return done(event.status());
  computed_.Add(*std::move(event),
                [this, done = std::move(done)](Status status) mutable { done(Noted(std::move(status))); });
}

Status Gpu::Synchronize() {
  MR_RETURN_IF_ERROR(Use());
  return Noted(CudaStatus(cudaStreamSynchronize(compute_.get()), "cudaStreamSynchronize", name_));
}

Status Gpu::Noted(Status status) {
  if (ABSL_PREDICT_TRUE(status.ok())) return status;
  // What one call did wrong is over with it; what broke the card is said by every later call.
  const cudaError_t now = cudaStreamQuery(compute_.get());
  if (now != cudaSuccess && now != cudaErrorNotReady) health_.Fail(status);
  return status;
}

Status Gpu::WithCublas(absl::FunctionRef<Status(const Cublas&, cublasHandle_t)> fn) {
  MR_ASSIGN_OR_RETURN(const Cublas* const cublas, Cublas::Get());
  MutexLock lock(&cublas_mu_);
  if (cublas_handle_ == nullptr) {
    // All products run in order on one stream, so they can share one workspace.
    if (!cublas_workspace_) cublas_workspace_ = memory_->Allocate(kCublasWorkspace);
    if (!cublas_workspace_) return ResourceExhausted("no memory for cuBLAS's workspace on ", name_);
    cublasHandle_t handle = nullptr;
    MR_RETURN_IF_ERROR(CublasStatus(cublas->cublasCreate(&handle), "cublasCreate", name_));
    Status status = CublasStatus(cublas->cublasSetStream(handle, compute_.get()), "cublasSetStream", name_);
    if (status.ok()) {
      status = CublasStatus(cublas->cublasSetWorkspace(handle, cublas_workspace_->data(), cublas_workspace_->size()),
                            "cublasSetWorkspace", name_);
    }
    if (!status.ok()) {
      cublas->cublasDestroy(handle);
      return status;
    }
    cublas_handle_ = handle;
  }
  return fn(*cublas, cublas_handle_);
}

Status Gpu::WithCudnn(absl::FunctionRef<Status(const Cudnn&, cudnnHandle_t)> fn) {
  MR_ASSIGN_OR_RETURN(const Cudnn* const cudnn, Cudnn::Get());
  MutexLock lock(&cudnn_mu_);
  if (cudnn_handle_ == nullptr) {
    MR_RETURN_IF_ERROR(Use());
    cudnnHandle_t handle = nullptr;
    MR_RETURN_IF_ERROR(CudnnStatus(*cudnn, cudnn->cudnnCreate(&handle), "cudnnCreate", name_));
    const Status status = CudnnStatus(*cudnn, cudnn->cudnnSetStream(handle, compute_.get()), "cudnnSetStream", name_);
    if (!status.ok()) {
      cudnn->cudnnDestroy(handle);
      return status;
    }
    cudnn_handle_ = handle;
  }
  return fn(*cudnn, cudnn_handle_);
}

}  // namespace millrace
