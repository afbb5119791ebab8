// Output shapes of the parsers of Examples and SequenceExamples.
#pragma once

#include "millrace/graph/shape_inference.h"

namespace millrace {

// Sets the output shapes in schema order.
class OutputShapes {
 public:
  // `serialized` is a scalar, a vector or unknown.
  OutputShapes(ShapeContext& c, const PartialShape& serialized) : c_(c), serialized_(serialized) {}

  // Names of the attrs that determine the number of outputs of each kind; empty if there are none.
  struct Attrs {
    const char* sparse_types = "";
    const char* dense_shapes = "";
    const char* ragged_types = "";
    bool fully_defined = false;  // whether dense shapes must be fully defined
    bool lengths = false;        // whether dense feature lists have length outputs
    bool scalar_splits = false;  // whether the splits of one example are a scalar, not empty
  };
  // Sparse indices, values and shapes; dense values; ragged values and splits.
  Status AddExample(const Attrs& attrs) { return Add(attrs, /*steps=*/0); }
  // The same with a dimension for the steps of feature lists.
  Status AddFeatureLists(const Attrs& attrs) { return Add(attrs, /*steps=*/1); }

 private:
  Status Add(const Attrs& attrs, int steps);
  void Next(PartialShape shape) { c_.set_output(next_++, std::move(shape)); }

  ShapeContext& c_;
  const PartialShape serialized_;
  int next_ = 0;
};

}  // namespace millrace
