// oneDNN as kernels use it: one thread for each call, so that results do not depend on how many there
// are and OpenMP's threads never compete with ours. Work is split into pieces by whoever calls.
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

// While one lives, OpenMP and so oneDNN use the calling thread alone. Primitives must be made under
// one too: their blocking depends on the number of threads.
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

// A primitive with the layouts of its arguments. Run is thread-safe: every call borrows its own memory
// handles and scratch space from a small pool, so that the steady state allocates nothing.
class Primitive {
 public:
  static constexpr int kMaxArgs = 6;
  struct Arg {
    int id;  // DNNL_ARG_SRC, ...
    dnnl::memory::desc desc;
  };

  // `primitive` was made with scratchpad_mode::user.
  Primitive(dnnl::primitive primitive, std::vector<Arg> args, const dnnl::memory::desc& scratchpad);
  ~Primitive();
  Primitive(const Primitive&) = delete;
  Primitive& operator=(const Primitive&) = delete;

  // data[i] is the memory of args[i]. INTERNAL or RESOURCE_EXHAUSTED when oneDNN fails.
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

// Attributes every primitive of ours has.
dnnl::primitive_attr UserScratchpad();

// Calls `make` on one thread and turns oneDNN's exceptions into a status that begins with `what`.
Status Guarded(absl::string_view what, absl::FunctionRef<void()> make);

// Keeps the first error of pieces that run at the same time.
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
