// Calling back when a device has come so far.
#pragma once

#include <deque>
#include <string>

#include "absl/functional/any_invocable.h"
#include "millrace/base/mutex.h"
#include "millrace/base/thread_pool.h"
#include "millrace/device/cuda/handle.h"

namespace millrace {

// Events of one stream, in the order in which they were recorded, each with what is to be called after it.
// One thread at a time waits for the event in front; the one whose event came calls back, while the next
// thread waits for the next event. So nothing is handed over between the device's end and the call, and a
// call that goes on with the step (launching kernels, which CUDA's own callbacks must not) delays nobody.
//
// Thread-safe. Lives as long as the process.
class Completions {
 public:
  Completions(std::string device_name, int ordinal, Scheduler* threads)
      : device_name_(std::move(device_name)), ordinal_(ordinal), threads_(threads) {}

  using Done = absl::AnyInvocable<void(Status)>;
  // Calls `done` once, on one of the threads, when `event` has come, or with the device's error.
  void Add(CudaEvent event, Done done);

 private:
  struct Entry {
    CudaEvent event;
    Done done;
  };
  // Waits for the entry in front and calls it.
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
