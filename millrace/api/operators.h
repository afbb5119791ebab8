// Arithmetic and comparisons on outputs. A number on either side takes the tensor's type; the new
// op goes into the scope of the left tensor.
#pragma once

#include "millrace/api/input.h"

namespace millrace {

#define MR_BINARY(op)                                    \
  Output operator op(const Output& a, const Output& b);  \
  Output operator op(const Output& a, const Literal& b); \
  Output operator op(const Literal& a, const Output& b);
MR_BINARY(+)
MR_BINARY(-)
MR_BINARY(*)
MR_BINARY(/)  // of integers: towards zero, as in C++
MR_BINARY(<)  // element by element, giving bools
MR_BINARY(<=)
MR_BINARY(>)
MR_BINARY(>=)
#undef MR_BINARY

Output operator-(const Output& a);

}  // namespace millrace
