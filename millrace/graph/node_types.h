// Resolves the types of a node's inputs and outputs from its op's schema and its attributes.
#pragma once

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "millrace/graph/graph.h"

namespace millrace {

// No op has more outputs; a larger length attr is a mistake or an attack.
inline constexpr int64_t kMaxOutputs = 1 << 16;

// Adds absent attrs that `input_types` determine to `attrs`: types, lengths and type lists. Inputs are assigned to
// arguments by the known list lengths; if only one length is unknown, that list takes the rest.
Status InferAttrs(const OpSchema& op, absl::Span<const DType> input_types, AttrMap* attrs);

// Checks every attr against the schema; NOT_FOUND if one is missing.
Status CheckAttrs(const OpSchema& op, const AttrMap& attrs);

// The input and output types for `attrs`, which must have passed CheckAttrs. `num_inputs` bounds the length attrs.
Status ResolveTypes(const OpSchema& op, const AttrMap& attrs, int num_inputs, absl::InlinedVector<DType, 4>* inputs,
                    absl::InlinedVector<DType, 2>* outputs);

// The name of the argument that input i belongs to, for messages.
std::string InputName(const Node& node, int i);

// The attr or its default; null if there is neither.
const pb::AttrValue* FindAttr(const OpSchema& op, const AttrMap& attrs, absl::string_view name);

}  // namespace millrace
