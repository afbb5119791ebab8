// The small language in which ops are declared; see op_schema.h.
#pragma once

#include "absl/strings/string_view.h"
#include "millrace/graph/op_schema.h"

namespace millrace {

// "name: type" into `arg`. INVALID_ARGUMENT quotes the spec and says what is wrong with it. Whether
// an identifier names an attr or a type is settled by ResolveArg, when all attrs are known.
Status ParseArgSpec(absl::string_view spec, OpArg* arg);

// "name: type >= minimum = default" into `attr`.
Status ParseAttrSpec(absl::string_view spec, OpAttr* attr);

// Ties an argument's names to the attrs of its schema.
Status ResolveArg(const OpSchema& schema, OpArg* arg);

}  // namespace millrace
