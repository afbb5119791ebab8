// Kernels that touch files, which may block for ever.
#pragma once

#include "millrace/runtime/file_threads.h"
#include "millrace/runtime/kernel.h"

namespace millrace {

// On a server it runs on the task's threads for files (FileThreads), so that no thread that serves is ever blocked, and
// its wait is listed under its node's name. When its step is cancelled, it has a second to end by itself; after that
// the step ends without it.
class FileKernel : public AsyncKernel {
 public:
  void ComputeAsync(KernelContext& ctx, Done done) final;

 protected:
  // As Kernel::Compute, with a context that is its own: the step may have ended before this returns. It must not
  // change the kernel.
  virtual Status ComputeFiles(KernelContext& ctx) const = 0;
  // See FileThreads::Work.
  virtual bool is_long() const { return false; }

 private:
  struct Operation;
};

// Runs `work` of `step` where it may block: on the task's threads for files, or, in a program without a server, on the
// step's other threads. `what` is listed among the waits.
void RunWhereItMayBlock(const StepContext& step, const Node& node, std::string what, absl::AnyInvocable<void()> work);

}  // namespace millrace
