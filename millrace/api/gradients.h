// Derivatives of outputs.
#pragma once

#include <optional>
#include <vector>

#include "millrace/api/input.h"
#include "millrace/api/output.h"

namespace millrace {

// Rows of a tensor of shape dense_shape: values[i] belongs to row indices[i]; an index may come
// more than once, and then its values add up.
struct IndexedSlices {
  Output values;
  Output indices;
  Output dense_shape;
};

// A derivative: a tensor, rows of one (as gathers give), or none where nothing connects the two.
class Gradient {
 public:
  Gradient() = default;
  Gradient(const Output& dense) : dense_(dense) {}                // NOLINT
  Gradient(IndexedSlices slices) : slices_(std::move(slices)) {}  // NOLINT

  bool empty() const { return dense_.empty() && !slices_; }
  bool is_slices() const { return slices_.has_value(); }
  // Empty for slices.
  const Output& dense() const { return dense_; }
  // Only when is_slices().
  const IndexedSlices& slices() const { return *slices_; }
  // The whole tensor in either case; empty when there is none.
  Output ToDense(const Scope& scope) const;

 private:
  Output dense_;
  std::optional<IndexedSlices> slices_;
};

struct GradientsOptions {
  // Weights of the ys, each of its y's shape; ones when left out.
  std::vector<Output> grad_ys = {};
  // Tensors that count as constants.
  std::vector<Output> stop_gradients = {};
  // Whether the new nodes go where the ops are that they are the gradients of. Otherwise they go where the scope says, as all nodes do, and
  // follow those ops only in a scope that says nothing.
  bool colocate_with_ops = false;
};

// d(sum of ys)/dx for each x. A Var among the xs stands for all readings of the variable. Adds
// nodes under "gradients" in the scope. A y that depends on an x through an op without a gradient
// makes the scope fail with UNIMPLEMENTED, naming the op.
std::vector<Gradient> Gradients(const Scope& scope, const std::vector<Output>& ys,
                                const std::vector<Output>& xs,
                                const GradientsOptions& options = {});

}  // namespace millrace
