#include "millrace/device/cuda/completions.h"

#include <chrono>
#include <utility>

namespace millrace {
namespace {

// Most waits at the end of a small step are shorter than blocking and waking a thread.
constexpr std::chrono::microseconds kSpin{60};

}  // namespace

void Completions::Add(CudaEvent event, Done done) {
  {
    MutexLock lock(&mu_);
    entries_.push_back({std::move(event), std::move(done)});
    if (has_leader_) return;
    has_leader_ = true;
  }
  threads_->Schedule([this] { Lead(); });
}

Status Completions::Await(cudaEvent_t event) const {
  MR_RETURN_IF_CUDA_ERROR(device_name_, cudaSetDevice(ordinal_));
  const auto until = std::chrono::steady_clock::now() + kSpin;
  while (true) {
    const cudaError_t code = cudaEventQuery(event);
    if (code != cudaErrorNotReady) return CudaStatus(code, "cudaEventQuery", device_name_);
    if (std::chrono::steady_clock::now() > until) break;
  }
  // Events are created with cudaEventBlockingSync: this blocks instead of spinning.
  MR_RETURN_IF_CUDA_ERROR(device_name_, cudaEventSynchronize(event));
  return absl::OkStatus();
}

void Completions::Lead() {
  Entry entry;
  {
    MutexLock lock(&mu_);
    entry = std::move(entries_.front());
    entries_.pop_front();
  }
  Status status = Await(entry.event.get());
  bool more;
  {
    MutexLock lock(&mu_);
    more = !entries_.empty();
    has_leader_ = more;
  }
  if (more) threads_->Schedule([this] { Lead(); });
  entry.done(std::move(status));
}

}  // namespace millrace
