// From an op's schema and a node's attributes to the types of its inputs and outputs.
#pragma once

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "millrace/graph/graph.h"

namespace millrace {

// No op that exists has more; a larger number attr is a mistake or an attack.
inline constexpr int64_t kMaxOutputs = 1 << 16;

// Adds the attrs that `input_types` determine to `attrs` where they are absent: types, numbers and
// type lists. Inputs are split between the arguments by the lists that are given; where just one
// list's length is unknown it takes what is left.
Status InferAttrs(const OpSchema& op, absl::Span<const DType> input_types, AttrMap* attrs);

// Checks every attr against the schema, and that none is missing (NOT_FOUND).
Status CheckAttrs(const OpSchema& op, const AttrMap& attrs);

// The types that the schema's inputs and outputs have under `attrs`, which passed CheckAttrs.
// `num_inputs` bounds what a number attr may ask for.
Status ResolveTypes(const OpSchema& op, const AttrMap& attrs, int num_inputs,
                    absl::InlinedVector<DType, 4>* inputs, absl::InlinedVector<DType, 2>* outputs);

// The name of the argument that input i belongs to, for messages.
std::string InputName(const Node& node, int i);

// Attr or default; null when there is neither.
const pb::AttrValue* FindAttr(const OpSchema& op, const AttrMap& attrs, absl::string_view name);

}  // namespace millrace
