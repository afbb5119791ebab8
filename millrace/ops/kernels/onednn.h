// Single-threaded oneDNN: each call uses one thread, so that results do not depend on the number of threads and
// OpenMP's threads never compete with ours. The caller splits work into pieces.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "dnnl.hpp"
#include "millrace/base/mutex.h"
#include "millrace/base/status.h"

namespace millrace::onednn {

// While an instance exists, OpenMP, and thereby oneDNN, uses only the calling thread. Primitives must be created under
// one too, because their blocking depends on the number of threads.
class SingleThreaded {
 public:
  SingleThreaded();
  ~SingleThreaded();
  SingleThreaded(const SingleThreaded&) = delete;
  SingleThreaded& operator=(const SingleThreaded&) = delete;

 private:
  int saved_;
};

const dnnl::engine& CpuEngine();

// A primitive and the layouts of its arguments. Run is thread-safe: every call borrows memory handles and scratch space
// from a small pool, so that the steady state does not allocate.
class Primitive {
 public:
  static constexpr int kMaxArgs = 6;
  struct Arg {
    int id;  // DNNL_ARG_SRC, ...
    dnnl::memory::desc desc;
  };

  // `primitive` must have been created with scratchpad_mode::user.
  Primitive(dnnl::primitive primitive, std::vector<Arg> args, const dnnl::memory::desc& scratchpad);
  ~Primitive();
  Primitive(const Primitive&) = delete;
  Primitive& operator=(const Primitive&) = delete;

  // data[i] is the memory of args[i]. INTERNAL or RESOURCE_EXHAUSTED if oneDNN fails.
  Status Run(absl::Span<void* const> data) const;

  const dnnl::memory::desc& desc(int i) const { return args_[i].desc; }

 private:
  struct Handles;
  static constexpr int kPooled = 16;
  Handles* Borrow() const;
  void Return(Handles* handles) const;

  const dnnl::primitive primitive_;
  const std::vector<Arg> args_;
  const dnnl::memory::desc scratchpad_;
  mutable std::array<std::atomic<Handles*>, kPooled> free_{};
};

// The attributes of all our primitives.
dnnl::primitive_attr UserScratchpad();

// Calls `make` under SingleThreaded and converts oneDNN's exceptions to a status that begins with `what`.
Status Guarded(absl::string_view what, absl::FunctionRef<void()> make);

// Keeps the first error of pieces that run concurrently.
class FirstError {
 public:
  void Update(const Status& status);
  bool ok() const { return !failed_.load(std::memory_order_relaxed); }
  Status status() const;

 private:
  std::atomic<bool> failed_{false};
  mutable Mutex mu_;
  Status status_ ABSL_GUARDED_BY(mu_);
};

}  // namespace millrace::onednn
