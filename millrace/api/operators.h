// Arithmetic and comparison operators on outputs. A number on either side adapts to the tensor's type; the new op is
// added to the scope of the left tensor.
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
MR_BINARY(/)  // integer division truncates, as in C++
MR_BINARY(<)  // element-wise, returns bools
MR_BINARY(<=)
MR_BINARY(>)
MR_BINARY(>=)
#undef MR_BINARY

Output operator-(const Output& a);

}  // namespace millrace
