// Parser of the op spec language; see op_schema.h.
#pragma once

#include "absl/strings/string_view.h"
#include "millrace/graph/op_schema.h"

namespace millrace {

// Parses "name: type" into `arg`. INVALID_ARGUMENT quotes the spec and names the problem. ResolveArg decides later,
// when all attrs are known, whether an identifier names an attr or a type.
Status ParseArgSpec(absl::string_view spec, OpArg* arg);

// Parses "name: type >= minimum = default" into `attr`.
Status ParseAttrSpec(absl::string_view spec, OpAttr* attr);

// Resolves an argument's names against the attrs of its schema.
Status ResolveArg(const OpSchema& schema, OpArg* arg);

}  // namespace millrace
