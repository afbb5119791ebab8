// The builder of Const, written by hand because its type is derived from its value.
#pragma once

#include "millrace/api/input.h"

namespace millrace::ops {

// Const(scope, 1), Const(scope, {{1, 2}, {3, 4}}), Const(scope, 1, DType::kDouble), Const(scope,
// tensor).
inline Output Const(const Scope& scope, const Literal& value, DType dtype = DType::kInvalid) {
  return Input(value).In(scope, dtype);
}
inline Output Const(const Scope& scope, std::initializer_list<Literal> rows, DType dtype = DType::kInvalid) {
  return Input(rows).In(scope, dtype);
}

}  // namespace millrace::ops
