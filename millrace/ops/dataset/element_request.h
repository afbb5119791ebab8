// Waiting for an element of a dataset.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "millrace/graph/shape_inference.h"
#include "millrace/ops/dataset/iterator_resource.h"
#include "millrace/runtime/kernel.h"

namespace millrace {

// A kernel's pending request for an element: it ends with the answer or with the cancellation of the step, whichever is
// first. Thread-safe.
class ElementRequest : public DatasetWalk::Request, public std::enable_shared_from_this<ElementRequest> {
 public:
  struct Options {
    // What the element is of, for the hang report: "iterator 'x'".
    std::string resource;
    // Sets the kernel's outputs.
    absl::AnyInvocable<Status(DatasetWalk::Answer& answer)> deliver;
  };
  // Calls `done` exactly once.
  static void Start(KernelContext& ctx, DatasetWalk& walk, Options options, Kernel::Done done);

  bool Wanted() const override;
  bool Take(DatasetWalk::Answer& answer) override;

 private:
  ElementRequest(KernelContext& ctx, Options options, Kernel::Done done)
      : ctx_(ctx), options_(std::move(options)), done_(std::move(done)) {}
  void StartOn(DatasetWalk& walk);
  void GiveUp();
  // Returns true for exactly one caller, which may end the request.
  bool End();
  void NoteWait();

  KernelContext& ctx_;  // lives until done_ is called
  Options options_;
  Kernel::Done done_;
  CancellationManager::Token token_ = 0;
  mutable Mutex mu_;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t wait_ ABSL_GUARDED_BY(mu_) = 0;
};

// The components as the kernel's outputs. INVALID_ARGUMENT if number or types differ.
Status SetElementOutputs(KernelContext& ctx, std::vector<Tensor> element);
// The shape function of an op whose outputs are components: the attribute output_shapes.
Status ComponentShapes(ShapeContext& c);

}  // namespace millrace
