// Fuzzes the reader of .npy files: what it accepts survives a round trip.
#include <cstddef>
#include <cstdint>

#include "millrace/io/npy.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;  // NOLINT
  const StatusOr<Tensor> tensor = ParseNpy({reinterpret_cast<const char*>(data), size});
  if (!tensor.ok()) return 0;
  const StatusOr<Tensor> again = ParseNpy(FormatNpy(*tensor).value());
  MR_CHECK(again.ok() && again->shape() == tensor->shape() && again->dtype() == tensor->dtype());
  return 0;
}
