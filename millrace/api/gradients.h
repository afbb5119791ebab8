// Gradients of outputs.
#pragma once

#include <optional>
#include <vector>

#include "millrace/api/input.h"
#include "millrace/api/output.h"

namespace millrace {

// A sparse representation of a tensor of shape dense_shape: values[i] belongs to row indices[i]. The values of a
// repeated index are summed.
struct IndexedSlices {
  Output values;
  Output indices;
  Output dense_shape;
};

// A gradient: a dense tensor, IndexedSlices (as gathers produce), or none if y does not depend on x.
class Gradient {
 public:
  Gradient() = default;
  Gradient(const Output& dense) : dense_(dense) {}                // NOLINT
  Gradient(IndexedSlices slices) : slices_(std::move(slices)) {}  // NOLINT

  bool empty() const { return dense_.empty() && !slices_; }
  bool is_slices() const { return slices_.has_value(); }
  // Empty for slices.
  const Output& dense() const { return dense_; }
  // Requires is_slices().
  const IndexedSlices& slices() const { return *slices_; }
  // The gradient as a dense tensor; empty if there is none.
  Output ToDense(const Scope& scope) const;

 private:
  Output dense_;
  std::optional<IndexedSlices> slices_;
};

struct GradientsOptions {
  // Initial gradients of the ys, each of its y's shape; ones by default.
  std::vector<Output> grad_ys = {};
  // Tensors that are treated as constants.
  std::vector<Output> stop_gradients = {};
  // Place gradient nodes on the devices of the forward ops. By default they use the scope's device, and follow the
  // forward ops only if the scope has none.
  bool colocate_with_ops = false;
};

// Returns d(sum of ys)/dx for each x. A Var among the xs covers all reads of the variable. The new nodes are named
// "gradients/..." in the scope. If a y depends on an x through an op without a gradient, the scope fails with
// UNIMPLEMENTED, naming the op.
std::vector<Gradient> Gradients(const Scope& scope, const std::vector<Output>& ys, const std::vector<Output>& xs,
                                const GradientsOptions& options = {});

}  // namespace millrace
