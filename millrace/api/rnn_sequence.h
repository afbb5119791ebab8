// Sequences in loops: the rows of a tensor as a list that a loop reads and writes. Internal to the front end.
#pragma once

#include "millrace/api/op_call.h"

namespace millrace {

// Dimension i of x as an int32 scalar; a constant if it is known.
Output DimOf(const Scope& scope, const Output& x, int i);

// A list of tensors of one type and shape. Gradients flow through it.
class RowList {
 public:
  // The rows of x along its first dimension.
  static RowList Of(const Scope& scope, const Output& x);
  // As many elements as x has rows, to be set. `dims` is the shape of an element, in which -1 is unknown, and `shape`
  // what is known of it when the graph is built; without `dims`, that alone.
  static RowList Reserve(const Scope& scope, DType dtype, const Output& dims, const PartialShape& shape,
                         const Output& x);

  const Output& list() const { return list_; }
  // Element `index` of this list. May be called in a loop's body.
  Output At(const Scope& scope, const Output& index) const;
  // `list`, a later value of this list, with an element set.
  Output With(const Scope& scope, const Output& list, const Output& index, const Output& element) const;
  // The elements of `list`, a later value of this list, as the rows of a tensor.
  Output Stack(const Scope& scope, const Output& list) const;

 private:
  DType dtype_ = DType::kInvalid;
  Output dims_;
  PartialShape shape_;
  Output list_;
  int64_t size_ = -1;  // -1 if unknown
};

namespace rnn {

// x [time, batch, ...] with zeros beyond each sequence's length; x itself if `length` is empty.
Output WithinLength(const Scope& scope, const Output& x, const Output& length);
// The row of x [time, batch, size] at the end of each sequence; that of `start` for one of length 0. If `length` is
// empty, all have the full length.
Output LastOf(const Scope& scope, const Output& x, const Output& start, const Output& length);

}  // namespace rnn
}  // namespace millrace
