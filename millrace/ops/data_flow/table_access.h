// How kernels reach tables.
#pragma once

#include "millrace/ops/data_flow/lookup_table.h"
#include "millrace/runtime/kernel.h"

namespace millrace {

// The table of input 0. INVALID_ARGUMENT when its types are not these; kInvalid stands for any.
StatusOr<RefPtr<LookupTable>> TableInput(const KernelContext& ctx, DType key_dtype,
                                         DType value_dtype);

// Runs a change of a table through the one entry point for it.
Status ChangeTable(KernelContext& ctx, absl::FunctionRef<Status()> change);

}  // namespace millrace
