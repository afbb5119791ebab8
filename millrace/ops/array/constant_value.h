// What a gradient function can know of an input before anything runs.
#pragma once

#include <optional>

#include "millrace/graph/graph.h"
#include "millrace/ops/array/int_list.h"

namespace millrace {

// The value of an integer scalar that is a Const, perhaps behind Identity nodes.
inline std::optional<int64_t> ConstantInt(Endpoint e) {
  while (e && e.node->is_type("Identity")) e = e.node->input(0);
  if (!e || !e.node->is_type("Const")) return std::nullopt;
  StatusOr<Tensor> value = e.node->Attr<Tensor>("value");
  if (!value.ok()) return std::nullopt;
  StatusOr<int64_t> n = ReadInt(*value, "value");
  return n.ok() ? std::optional<int64_t>(*n) : std::nullopt;
}

}  // namespace millrace
