// Reads the tensors of a checkpoint on all threads of a pool, in pieces of about a megabyte, each of which is
// checksummed while it is still in the core's cache.
#pragma once

#include "millrace/io/bundle.h"

namespace millrace {

// See BundleReader::Read.
Status ReadBundleTensors(const BundleReader& reader, absl::Span<const BundleTensor> tensors,
                         absl::Span<Tensor* const> outputs, ThreadPool* pool, CancellationManager* cancellation);

}  // namespace millrace
