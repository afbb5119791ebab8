// Access of kernels to lookup tables.
#pragma once

#include "millrace/ops/data_flow/lookup_table.h"
#include "millrace/runtime/kernel.h"

namespace millrace {

// The table of input 0. INVALID_ARGUMENT if its types differ from these; kInvalid matches any type.
StatusOr<RefPtr<LookupTable>> TableInput(const KernelContext& ctx, DType key_dtype, DType value_dtype);

// Applies a change to a table through ResourceManager::Update.
Status ChangeTable(KernelContext& ctx, absl::FunctionRef<Status()> change);

}  // namespace millrace
