// Constant inputs of gradient functions.
#pragma once

#include <optional>

#include "millrace/graph/graph.h"
#include "millrace/ops/array/int_list.h"

namespace millrace {

// The value of an integer scalar Const, looking through Identity nodes; nullopt if it is not one.
inline std::optional<int64_t> ConstantInt(Endpoint e) {
  while (e && e.node->is_type("Identity")) e = e.node->input(0);
  if (!e || !e.node->is_type("Const")) return std::nullopt;
  StatusOr<Tensor> value = e.node->Attr<Tensor>("value");
  if (!value.ok()) return std::nullopt;
  StatusOr<int64_t> n = ReadInt(*value, "value");
  return n.ok() ? std::optional<int64_t>(*n) : std::nullopt;
}

}  // namespace millrace
