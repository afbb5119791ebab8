// Callbacks for completed device work.
#pragma once

#include <deque>
#include <string>

#include "absl/functional/any_invocable.h"
#include "millrace/base/mutex.h"
#include "millrace/base/thread_pool.h"
#include "millrace/device/cuda/handle.h"

namespace millrace {

// Events of one stream in recording order, each with a callback. Leader-follower: one thread at a time waits for the
// first event; when it completes, that thread runs the callback while another waits for the next event. So there is no
// thread switch between completion and callback, and a callback that continues the step (launching kernels, which
// CUDA's own callbacks must not do) delays no other.
//
// Thread-safe. Never destroyed.
class Completions {
 public:
  Completions(std::string device_name, int ordinal, Scheduler* threads)
      : device_name_(std::move(device_name)), ordinal_(ordinal), threads_(threads) {}

  using Done = absl::AnyInvocable<void(Status)>;
  // Calls `done` once, on one of the threads, when `event` has completed or the device fails.
  void Add(CudaEvent event, Done done);

 private:
  struct Entry {
    CudaEvent event;
    Done done;
  };
  // Waits for the first entry and runs its callback.
  void Lead();
  Status Await(cudaEvent_t event) const;

  const std::string device_name_;
  const int ordinal_;
  Scheduler* const threads_;
  Mutex mu_;
  std::deque<Entry> entries_ ABSL_GUARDED_BY(mu_);
  bool has_leader_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace millrace
